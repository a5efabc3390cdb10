//! A client of a running Tally, for the commands of people.

use anyhow::{Context, bail};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde::de::DeserializeOwned;

/// Talks to one process over HTTP.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
}

impl Client {
    pub(crate) fn new(url: &str) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().build()?;
        Ok(Client { http, url: url.trim_end_matches('/').to_owned() })
    }

    /// A request to a path of the process.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }

    /// The JSON answer to a request; a problem becomes an error that says what to do.
    pub(crate) async fn json<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> anyhow::Result<T> {
        Ok(serde_json::from_str(&self.text(request).await?)?)
    }

    /// The answer to a request as text.
    pub(crate) async fn text(&self, request: RequestBuilder) -> anyhow::Result<String> {
        let (status, text) = self.answer(request).await?;
        if !status.is_success() {
            let problem: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            let rejected = problem["rejected"][0]["detail"].as_str();
            let detail = rejected.or(problem["detail"].as_str()).unwrap_or(&text);
            bail!("{status}: {detail}");
        }
        Ok(text)
    }

    /// Status and text of the answer, whatever it is.
    pub(crate) async fn answer(
        &self,
        request: RequestBuilder,
    ) -> anyhow::Result<(StatusCode, String)> {
        let unreachable = || format!("no Tally answers at {} (is it running? see --url)", self.url);
        let response = request.send().await.with_context(unreachable)?;
        Ok((response.status(), response.text().await?))
    }
}
