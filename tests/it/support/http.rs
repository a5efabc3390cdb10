//! What every test asks over HTTP.

use std::time::{Duration, Instant, SystemTime};

use reqwest::Client;
use serde_json::Value;

/// The answer's JSON; null where there is none.
pub(crate) async fn get(client: &Client, url: &str) -> Value {
    match client.get(url).send().await {
        Ok(response) => response.json().await.unwrap_or_default(),
        Err(_) => Value::Null,
    }
}

/// Sends NDJSON events again and again until they are answered with success, as clients do; `url`
/// may change while it tries.
pub(crate) async fn post_until_answered(client: &Client, url: impl Fn() -> String, body: &str) {
    for _ in 0..200 {
        let post = client.post(format!("{}/v1/events", url()));
        let post = post.header("content-type", "application/x-ndjson").body(body.to_owned());
        let answer = post.timeout(Duration::from_secs(5)).send().await;
        if answer.is_ok_and(|answer| answer.status().is_success()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("ingest does not come back");
}

/// Waits until the reader answers for a counter as of `at_ms` or later.
pub(crate) async fn wait_until(reader: &str, counter: &str, at_ms: i64) {
    let (client, started) = (Client::new(), Instant::now());
    loop {
        let answer = get(&client, &format!("{reader}/v1/counters/{counter}")).await;
        let as_of = answer["as_of"].as_str().and_then(tally_proto::parse_rfc3339);
        if as_of.is_some_and(|as_of| as_of >= at_ms) {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(180), "never caught up: {answer}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Now, in milliseconds since 1970.
pub(crate) fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}
