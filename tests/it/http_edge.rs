//! The edge: every answer of API.md, bad input, and clients that behave badly.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde_json::{Value, json};

use crate::support::Process;

struct Served {
    tally: Process,
    http: reqwest::Client,
    _folder: tempfile::TempDir,
}

impl Served {
    async fn new(more: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = BTreeMap::new();
        for (name, value) in [
            ("TALLY__DATA_DIR", folder.path().to_str().unwrap()),
            ("TALLY__FLUSH__INTERVAL_MS", "100"),
            ("TALLY__READER__REDUCE_INTERVAL_MS", "50"),
        ]
        .iter()
        .chain(more)
        {
            settings.insert((*name).to_owned(), (*value).to_owned());
        }
        let tally = Process::start(&["serve"], &settings).await;
        Served { tally, http: reqwest::Client::new(), _folder: folder }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.tally.url)
    }

    async fn post(&self, path: &str, content_type: &str, body: impl Into<reqwest::Body>) -> Answer {
        let request = self.http.post(self.url(path)).header(CONTENT_TYPE, content_type);
        Answer::of(request.body(body)).await
    }

    async fn json(&self, body: Value) -> Answer {
        self.post("/v1/events", "application/json", body.to_string()).await
    }

    async fn put(&self, path: &str, body: Value) -> Answer {
        Answer::of(self.http.put(self.url(path)).body(body.to_string())).await
    }

    async fn get(&self, path: &str) -> Answer {
        Answer::of(self.http.get(self.url(path))).await
    }

    /// Waits until a counter has a total.
    async fn wait_total(&self, counter: &str, total: &str) {
        let started = Instant::now();
        loop {
            let answer = self.get(&format!("/v1/counters/{counter}")).await;
            if answer.body["total"] == total && !answer.body["as_of"].is_null() {
                return;
            }
            assert!(started.elapsed() < Duration::from_secs(20), "{counter}: {}", answer.body);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

struct Answer {
    status: u16,
    content_type: String,
    headers: reqwest::header::HeaderMap,
    body: Value,
}

impl Answer {
    async fn of(request: reqwest::RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        let headers = response.headers().clone();
        let content_type = headers.get(CONTENT_TYPE).map_or("", |v| v.to_str().unwrap()).to_owned();
        let status = response.status().as_u16();
        let body = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or(Value::Null);
        Answer { status, content_type, headers, body }
    }

    /// It is a problem of this status and code, told as RFC 9457 says.
    #[track_caller]
    fn is_problem(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{}", self.body);
        assert_eq!(self.body["code"], code, "{}", self.body);
        assert_eq!(self.content_type, "application/problem+json");
        assert!(self.body["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_every_format_are_counted() {
    let served = Served::new(&[]).await;
    let one = json!({"kind": "view", "subject": "v"});
    let answer = served.json(one.clone()).await;
    assert_eq!((answer.status, &answer.body["accepted"]), (200, &json!(1)));
    assert_eq!(answer.body["token"], answer.headers["tally-token"].to_str().unwrap());
    assert_eq!(
        served.json(json!([one, {"kind": "view", "subject": "v", "delta": 5}])).await.status,
        200
    );
    let lines = format!("{one}\n{one}\n");
    assert_eq!(served.post("/v1/events", "application/x-ndjson", lines.clone()).await.status, 200);
    let cloud = json!({"specversion": "1.0", "id": "1", "source": "/a", "type": "t", "data": one});
    let path = "/v1/events";
    let answer = served.post(path, "application/cloudevents+json", cloud.to_string()).await;
    assert_eq!(answer.status, 200);
    let (mut second, mut third) = (cloud.clone(), cloud);
    (second["id"], third["id"]) = (json!("2"), json!("3"));
    let batch = json!([second, third]).to_string();
    assert_eq!(served.post(path, "application/cloudevents-batch+json", batch).await.status, 200);
    let accepted =
        served.post("/v1/events?ack=accepted", "application/json", one.to_string()).await;
    assert_eq!((accepted.status, accepted.body.get("token")), (202, None));
    let added = served.post("/v1/counters/view/v:add", "application/json", r#"{"delta":10}"#).await;
    assert_eq!(added.status, 200);
    served.wait_total("view/v", "23").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_bodies_are_read_and_their_limit_holds_after_decompression() {
    let served = Served::new(&[]).await;
    let send = |encoding: &'static str, file: std::path::PathBuf| {
        let body = std::fs::read(file).unwrap();
        Answer::of(
            served
                .http
                .post(served.url("/v1/events"))
                .header(CONTENT_TYPE, "application/x-ndjson")
                .header(CONTENT_ENCODING, encoding)
                .body(body),
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "{\"kind\":\"view\",\"subject\":\"z\"}\n".repeat(1_000)).unwrap();
    let bomb = folder.path().join("bomb");
    std::fs::write(&bomb, " ".repeat(64 << 20)).unwrap();
    for path in [&plain, &bomb] {
        let gzip = std::process::Command::new("gzip").arg("-k").arg(path).status().unwrap();
        assert!(gzip.success());
    }
    assert_eq!(send("gzip", folder.path().join("plain.gz")).await.body["accepted"], 1_000);
    send("gzip", folder.path().join("bomb.gz")).await.is_problem(413, "body_too_large");
    send("gzip", plain.clone()).await.is_problem(400, "bad_body");
    send("br", plain).await.is_problem(415, "unsupported_encoding");
    served.wait_total("view/z", "1000").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_is_a_problem_with_its_code() {
    let served = Served::new(&[]).await;
    let json_type = "application/json";
    served.post("/v1/events", json_type, "{").await.is_problem(400, "malformed");
    served.post("/v1/events", json_type, vec![0xff]).await.is_problem(400, "malformed");
    served.post("/v1/events", "text/plain", "{}").await.is_problem(415, "unsupported_media_type");
    let large = " ".repeat(9 << 20);
    served.post("/v1/events", json_type, large).await.is_problem(413, "body_too_large");
    let many = format!("[{}1]", "1,".repeat(20_000));
    served.post("/v1/events", json_type, many).await.is_problem(413, "too_many_events");
    served.post("/v1/events?ak=accepted", json_type, "{}").await.is_problem(400, "bad_query");
    served
        .post("/v1/counters/view/a:subtract", json_type, "{}")
        .await
        .is_problem(404, "unknown_verb");
    let odd = r#"{"subject":"b"}"#;
    served.post("/v1/counters/view/a:add", json_type, odd).await.is_problem(400, "malformed");
    served.post("/v1/counters/nope/a:reset", json_type, "").await.is_problem(404, "unknown_kind");
    served.post("/v1/counters/view/..:reset", json_type, "").await.is_problem(400, "bad_name");
    let add = "/v1/counters/view/a:add?return=total";
    served.post(add, json_type, "{}").await.is_problem(400, "not_supported");
    served.get("/v1/counters/nope/a").await.is_problem(404, "unknown_kind");
    served.get("/v1/counters/view/a%20b").await.is_problem(400, "bad_name");
    served.get("/v1/counters/view/a?after=x").await.is_problem(400, "not_supported");
    served.get("/v1/nothing").await.is_problem(404, "not_found");
    served.get("/v1/events").await.is_problem(405, "method_not_allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_item_spoils_itself_only() {
    let served = Served::new(&[]).await;
    let mixed = served
        .json(json!([
            {"kind": "view", "subject": "m"},
            {"kind": "like", "subject": "m"},
            {"kind": "view", "subject": "m", "id": "x".repeat(129)},
            {"kind": "view", "subject": "x".repeat(129)},
            {"kind": "view", "subject": "m", "delta": 0},
            {"kind": "view", "subject": "m"},
            {"kind": "like", "subject": "m", "actor": "user:9", "delta": 2},
            {"kind": "like", "subject": "m", "actor": "user:9", "op": "add"},
        ]))
        .await;
    assert_eq!((mixed.status, &mixed.body["accepted"]), (207, &json!(2)));
    let rejected = mixed.body["rejected"].as_array().unwrap();
    let told: Vec<_> =
        rejected.iter().map(|r| (&r["index"], r["code"].as_str().unwrap())).collect();
    let expected = [
        (&json!(1), "actor_missing"),
        (&json!(2), "bad_name"),
        (&json!(3), "bad_name"),
        (&json!(4), "zero_delta"),
        (&json!(6), "delta_on_set"),
        (&json!(7), "wrong_op"),
    ];
    assert_eq!(told, expected);
    let none = served.json(json!([{"kind": "view"}, 7])).await;
    none.is_problem(422, "all_rejected");
    assert_eq!(none.body["rejected"].as_array().unwrap().len(), 2);
    served.wait_total("view/m", "2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_may_be_created_with_shards_or_hints() {
    let served = Served::new(&[]).await;
    let hints = json!({"followers": 12_000_000, "visibility": "public", "trending": true});
    for (path, body, status, shards) in [
        ("view/made", json!({"shards": 4}), 201, 4),
        ("view/made", json!({"shards": 4}), 200, 4),
        ("view/made", json!({"shards": 999}), 200, 8), // as many as there are partitions
        ("view/made?namespace=eu", json!({}), 201, 1),
        ("view/famous", hints.clone(), 201, 8),
        ("like/famous", hints, 201, 8),
    ] {
        let answer = served.put(&format!("/v1/counters/{path}"), body).await;
        assert_eq!((answer.status, &answer.body["shards"]), (status, &json!(shards)), "{path}");
    }
    for (path, body, status, code) in [
        ("like/a", json!({"shards": 4}), 422, "shards_on_set"),
        ("view/a", json!({"shards": 0}), 422, "no_shards"),
        ("view/a", json!({"shards": 2, "followers": 1}), 400, "malformed"),
        ("view/a", json!({"visibility": "none"}), 400, "malformed"),
        ("nope/a", json!({}), 404, "unknown_kind"),
        ("view/a%20b", json!({}), 400, "bad_name"),
    ] {
        served.put(&format!("/v1/counters/{path}"), body).await.is_problem(status, code);
    }
    served.wait_total("view/made", "0").await;
    assert_eq!(served.json(json!({"kind": "view", "subject": "made"})).await.status, 200);
    served.wait_total("view/made", "1").await;
    let gone = served.http.delete(served.url("/v1/counters/view/made"));
    assert_eq!(gone.send().await.unwrap().status(), 200);
    served.wait_total("view/made", "0").await;
    let again = served.put("/v1/counters/view/made", json!({"shards": 2})).await;
    assert_eq!(again.status, 201, "it was gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_with_an_id_counts_once() {
    let served = Served::new(&[]).await;
    let event = json!({"kind": "view", "subject": "once", "delta": 3, "id": "0192f0c1-7"});
    for _ in 0..3 {
        assert_eq!(served.json(event.clone()).await.status, 200);
    }
    let others = json!([
        {"kind": "view", "subject": "once", "id": "0192f0c1-8"},
        {"kind": "view", "subject": "other", "id": "0192f0c1-7"},
        {"kind": "reply", "subject": "once", "id": "0192f0c1-7", "actor": "user:9"},
        {"kind": "like", "subject": "once", "id": "1", "actor": "user:9"},
        {"kind": "like", "subject": "once", "id": "2", "actor": "user:9", "op": "unset"},
        {"kind": "like", "subject": "once", "id": "1", "actor": "user:9"},
    ]);
    assert_eq!(served.json(others).await.status, 200);
    let cloud = |source: &str| {
        format!(
            r#"{{"specversion":"1.0","id":"7","source":"{source}","type":"view",
                "data":{{"kind":"view","subject":"cloud"}}}}"#
        )
    };
    for source in ["/app", "/app", "/other"] {
        let sent = served.post("/v1/events", "application/cloudevents+json", cloud(source)).await;
        assert_eq!(sent.status, 200);
    }
    for (counter, total) in
        [("view/once", "4"), ("view/other", "1"), ("reply/once", "1"), ("view/cloud", "2")]
    {
        served.wait_total(counter, total).await;
    }
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await; // nothing more comes
    for (counter, total) in [("view/once", "4"), ("view/cloud", "2"), ("like/once", "0")] {
        served.wait_total(counter, total).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_actor_counts_once_and_can_be_asked_for() {
    let served = Served::new(&[]).await;
    let json_type = "application/json";
    for body in [r#"{"actor":"user:9"}"#, r#"{"actor":"user:9"}"#, r#"{"actor":"user:8"}"#] {
        assert_eq!(served.post("/v1/counters/like/p:add", json_type, body).await.status, 200);
    }
    served.wait_total("like/p", "2").await;
    let undo = r#"{"op":"unset","actor":"user:8"}"#;
    for _ in 0..2 {
        assert_eq!(served.post("/v1/counters/like/p:add", json_type, undo).await.status, 200);
    }
    served.wait_total("like/p", "1").await;
    let asked = served.get("/v1/actors/user:9/like?subjects=p,q").await;
    assert_eq!((asked.status, asked.body), (200, json!({"p": true, "q": false})));
    let asked =
        served.post("/v1/actors/user:8/like:read", json_type, r#"{"subjects":["p"]}"#).await;
    assert_eq!((asked.status, asked.body), (200, json!({"p": false})));
    let listed = served.get("/v1/counters/like/p/actors").await;
    assert_eq!((listed.status, listed.body), (200, json!({"actors": ["user:9"], "next": null})));
    let nobody = served.get("/v1/counters/like/never/actors?limit=5").await;
    assert_eq!(nobody.body, json!({"actors": [], "next": null}));
    served.get("/v1/counters/view/p/actors").await.is_problem(422, "counts_no_actors");
    served.get("/v1/counters/like/p/actors?limit=0").await.is_problem(400, "bad_limit");
    served.get("/v1/counters/like/p/actors?after=x").await.is_problem(400, "bad_cursor");
    served.get("/v1/actors/user:9/nope?subjects=p").await.is_problem(404, "unknown_kind");
    served.get("/v1/actors/user:9/view?subjects=p").await.is_problem(422, "counts_no_actors");
    served.get("/v1/actors/user:9/like?subjects=a%20b").await.is_problem(400, "bad_name");
    served.get("/v1/actors/%20/like?subjects=p").await.is_problem(400, "bad_name");
    let many = json!({"subjects": vec!["p"; 1_001]}).to_string();
    let read = "/v1/actors/user:9/like:read";
    served.post(read, json_type, many).await.is_problem(413, "too_many_subjects");
    served.post(read, json_type, "7").await.is_problem(400, "malformed");
    served.post("/v1/actors/user:9/like:x", json_type, "{}").await.is_problem(404, "unknown_verb");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_has_a_total_its_time_and_a_tag() {
    let served = Served::new(&[]).await;
    let never = served.get("/v1/counters/view/never").await;
    assert_eq!((never.status, &never.body["total"]), (200, &json!("0")));
    served.json(json!({"kind": "view", "subject": "t", "delta": 10_241_837})).await;
    served.wait_total("view/t", "10241837").await;
    let answer = served.get("/v1/counters/view/t").await;
    assert_eq!(answer.body["display"], "10.2M");
    assert_eq!(answer.body["exact"], true);
    assert!(answer.body["as_of"].as_str().unwrap().ends_with('Z'));
    assert!(answer.body["staleness_ms"].as_u64().unwrap() < 10_000);
    assert!(answer.headers["cache-control"].to_str().unwrap().starts_with("max-age="));
    let tag = answer.headers["etag"].clone();
    let again = served.http.get(served.url("/v1/counters/view/t")).header("if-none-match", tag);
    assert_eq!(Answer::of(again).await.status, 304);
    let number = served.get("/v1/counters/view/t?numbers=json&shards=true").await;
    assert_eq!(number.body["total"], 10_241_837);
    assert_eq!(number.body["shards"][0]["partial"], "10241837");
    let metrics = reqwest::get(served.url("/metrics")).await.unwrap().text().await.unwrap();
    assert!(metrics.contains("tally_ingest_events_total 1") && metrics.ends_with("# EOF\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn too_much_at_once_is_shed_with_429_and_counts_nothing() {
    let served = Served::new(&[("TALLY__INGEST__MAX_PENDING_EVENTS", "20000")]).await;
    let body = "{\"kind\":\"view\",\"subject\":\"s\"}\n".repeat(15_000);
    let requests = (0..24).map(|_| {
        let body = body.clone();
        served.post("/v1/events", "application/x-ndjson", body)
    });
    let answers = futures::future::join_all(requests).await;
    let accepted = answers.iter().filter(|answer| answer.status == 200).count();
    let shed: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert_eq!(accepted + shed.len(), answers.len());
    assert!(accepted > 0);
    for answer in shed {
        answer.is_problem(429, "busy");
        assert_eq!(answer.headers["retry-after"], "1");
    }
    served.wait_total("view/s", &(accepted * 15_000).to_string()).await;
}

/// Reads until the server closes; how long that took.
fn until_closed(mut stream: TcpStream) -> Duration {
    let started = Instant::now();
    stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    started.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_dribbles_is_closed() {
    let served = Served::new(&[("TALLY__INGEST__BODY_TIMEOUT_MS", "2000")]).await;
    let address = served.tally.url.strip_prefix("http://").unwrap();
    let mut head = TcpStream::connect(address).unwrap();
    head.write_all(b"POST /v1/events HTTP/1.1\r\nhost: a\r\n").unwrap();
    let mut body = TcpStream::connect(address).unwrap();
    body.write_all(
        b"POST /v1/events HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\nconnection: close\r\n\r\n{",
    )
    .unwrap();
    let idle = TcpStream::connect(address).unwrap();
    let closed =
        [head, body, idle].map(|stream| tokio::task::spawn_blocking(move || until_closed(stream)));
    for closed in closed {
        assert!(closed.await.unwrap() < Duration::from_secs(15));
    }
}
