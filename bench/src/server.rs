//! The server, as a process of its own, against a bare axum handler that does the unavoidable.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use tally_log::kafka::KafkaSettings;
use tally_proto::RawEvent;

use crate::{Line, client, cpu, input, kafka};

/// This program, asked to be the bare server, or Tally.
pub(crate) const BARE: &str = "bare-server";
pub(crate) const TALLY: &str = "serve";

const BARE_ADDRESS: &str = "127.0.0.1:18081";
const TALLY_ADDRESS: &str = "127.0.0.1:18080";
const TIME: Duration = Duration::from_secs(6);

/// What a cached read answers.
const ANSWER: &str = r#"{"namespace":"default","kind":"view","subject":"video:1","total":"10241837","display":"10.2M","as_of":"2026-11-20T12:00:01.250Z","staleness_ms":412,"exact":true}"#;

/// Serves until it is killed: parses the body of a POST, answers a GET with a fixed body.
pub(crate) fn bare() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let parse = |body: bytes::Bytes| async move {
            RawEvent::parse(std::str::from_utf8(&body).unwrap()).unwrap();
            ([("content-type", "application/json")], r#"{"accepted":1,"rejected":[]}"#)
        };
        let json = [("content-type", "application/json")];
        let router = Router::new()
            .route("/v1/events", post(parse))
            .route("/v1/counters/{kind}/{subject}", get(move || async move { (json, ANSWER) }));
        let listener = tokio::net::TcpListener::bind(BARE_ADDRESS).await.unwrap();
        axum::serve(listener, router).await.unwrap();
    });
}

struct Server {
    child: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Server {
    fn start(role: &str, address: &str, settings: &[(&str, String)]) -> Self {
        let folder = tempfile::tempdir_in(".").unwrap(); // on the disk, not in memory
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(role).stderr(Stdio::null()).stdin(Stdio::null());
        for (variable, _) in std::env::vars().filter(|(name, _)| name.starts_with("TALLY__")) {
            command.env_remove(variable);
        }
        command.envs(settings.iter().cloned());
        command.env("TALLY__LISTEN", address).env("TALLY__DATA_DIR", folder.path());
        let server = Server {
            child: command.spawn().unwrap(),
            address: address.parse().unwrap(),
            _folder: folder,
        };
        for _ in 0..200 {
            if std::net::TcpStream::connect(server.address).is_ok() {
                return server;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{role} does not serve");
    }

    fn tally() -> Self {
        Server::start(TALLY, TALLY_ADDRESS, &[])
    }

    /// On a topic of its own, with the embedded store.
    fn tally_on(kafka: KafkaSettings) -> Self {
        let settings = [
            ("TALLY__KAFKA__BROKERS", kafka.brokers.unwrap()),
            ("TALLY__KAFKA__TOPIC", kafka.topic),
            ("TALLY__ALLOW_SINGLE_REPLICA", "true".into()),
        ];
        Server::start(TALLY, TALLY_ADDRESS, &settings)
    }

    fn bare() -> Self {
        Server::start(BARE, BARE_ADDRESS, &[])
    }

    /// Requests answered a second, and a second of its processor.
    fn drive(&self, requests: &[Vec<u8>], connections: usize) -> (f64, f64) {
        client::drive(self.address, requests, connections, Duration::from_secs(1)); // warm
        let before = cpu(self.child.id());
        let answered = client::drive(self.address, requests, connections, TIME) as f64;
        let cpu = cpu(self.child.id()).saturating_sub(before).as_secs_f64();
        (answered / TIME.as_secs_f64(), answered / cpu)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn single_requests(json: impl Fn(usize, &String) -> String) -> Vec<Vec<u8>> {
    let subjects = input::subjects(500_000, 100_000);
    let events = subjects.iter().enumerate().map(|(at, subject)| json(at, subject));
    events.map(|event| client::post("/v1/events", "application/json", &event)).collect()
}

/// One event a request, by Tally and by the bare server: requests a second, and of the processor.
fn single(tally: Server) -> [(f64, f64); 2] {
    let requests = single_requests(|_, subject| input::json(subject));
    let reached = tally.drive(&requests, 256);
    drop(tally);
    [reached, Server::bare().drive(&requests, 256)]
}

pub(crate) fn ingest_single() -> Line {
    let [(reached, _), (limit, _)] = single(Server::tally());
    Line {
        name: "ingest, one event a request",
        reached: format!("{reached:.0} requests/s"),
        limit: format!("{limit:.0} requests/s bare"),
        ratio: reached / limit,
        wanted: 0.8,
    }
}

/// By the processor, since the broker works on the same cores.
fn by_processor(name: &'static str, tally: Server) -> Line {
    let [(wall, reached), (_, limit)] = single(tally);
    Line {
        name,
        reached: format!("{reached:.0}/CPU s ({wall:.0}/s)"),
        limit: format!("{limit:.0}/CPU s bare"),
        ratio: reached / limit,
        wanted: 0.8,
    }
}

pub(crate) fn ingest_single_cpu() -> Line {
    by_processor("  the same, by CPU of the server", Server::tally())
}

pub(crate) fn kafka_ingest_single() -> Line {
    let kafka = kafka::topic("ingest");
    by_processor("ingest, one event a request, Kafka", Server::tally_on(kafka))
}

/// NDJSON of 500 events a request: events a second, and of the processor.
fn ndjson(json: impl Fn(usize, &String) -> String) -> (f64, f64) {
    let subjects = input::subjects(1_000_000, 100_000);
    let lines: Vec<String> =
        subjects.iter().enumerate().map(|(at, s)| json(at, s) + "\n").collect();
    let body =
        |lines: &[String]| client::post("/v1/events", "application/x-ndjson", &lines.concat());
    let requests: Vec<Vec<u8>> = lines.chunks(500).map(body).collect();
    let (wall, cpu) = Server::tally().drive(&requests, 32);
    (wall * 500.0, cpu * 500.0)
}

/// One event a request, with ids against plain ones.
pub(crate) fn ingest_single_ids() -> Line {
    let plain = single_requests(|_, subject| input::json(subject));
    let (_, plain) = Server::tally().drive(&plain, 256);
    let once = single_requests(|at, subject| input::json_once(subject, at));
    let (wall, reached) = Server::tally().drive(&once, 256);
    Line {
        name: "one event with an id a request",
        reached: format!("{reached:.0}/CPU s ({wall:.0}/s)"),
        limit: format!("{plain:.0}/CPU s plain"),
        ratio: reached / plain,
        wanted: 1.0 / 1.5,
    }
}

/// Events with ids against plain ones.
pub(crate) fn ingest_ids() -> Line {
    let (_, plain) = ndjson(|_, subject| input::json(subject));
    let (wall, reached) = ndjson(|at, s| input::json_once(s, at));
    Line {
        name: "NDJSON of 500, each event with an id",
        reached: format!("{reached:.0}/CPU s ({wall:.0}/s)"),
        limit: format!("{plain:.0}/CPU s plain"),
        ratio: reached / plain,
        wanted: 1.0 / 1.5,
    }
}

pub(crate) fn ingest_ndjson() -> Line {
    let (wall, cpu) = ndjson(|_, subject| input::json(subject));
    Line {
        name: "ingest, NDJSON of 500, embedded",
        reached: format!("{cpu:.0} events/CPU s"),
        limit: format!("300000 ({wall:.0} a second)"),
        ratio: cpu / 300_000.0,
        wanted: 1.0,
    }
}

pub(crate) fn read_cached() -> Line {
    let requests = [client::get("/v1/counters/view/video:1")];
    let tally = Server::tally();
    let event = client::post("/v1/events", "application/json", &input::json("video:1"));
    client::drive(tally.address, &[event], 1, Duration::from_millis(50));
    let (reached, _) = tally.drive(&requests, 64);
    drop(tally);
    let (limit, _) = Server::bare().drive(&requests, 64);
    Line {
        name: "cached read",
        reached: format!("{reached:.0} requests/s"),
        limit: format!("{limit:.0} requests/s bare"),
        ratio: reached / limit,
        wanted: 0.8,
    }
}
