//! The Rust client: batches, retries that count once, refusals that name the event.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use tally_client::{Client, Event, SendError};

use crate::support::{Mortal, get, root, unix_ms, wait_until};

async fn total(url: &str, counter: &str) -> String {
    let answer = get(&reqwest::Client::new(), &format!("{url}/v1/counters/{counter}")).await;
    answer["total"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_sends_is_counted_once_through_kills_of_the_server() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let listen = "127.0.0.1:18091"; // the same after each kill: the client knows no other
    let settings = BTreeMap::from([
        ("TALLY__DATA_DIR".to_owned(), folder.path().display().to_string()),
        ("TALLY__LISTEN".to_owned(), listen.to_owned()),
    ]);
    let mut tally = Mortal::start(settings).await;
    let client = Client::builder(&tally.process.url).batch(100).queue(1_000).build();
    let sending = async {
        for n in 0..60_000u32 {
            let subject = format!("sent:{}", n % 7);
            client.send(Event::add("view", &subject).delta(2)).await.unwrap();
            let actor = format!("user:{}", n % 300);
            if n % 3 == 0 {
                client.send(Event::set("like", "sent:0", &actor)).await.unwrap();
            } else if n % 600 == 1 {
                client.send(Event::add("view", "sent:own").id("once")).await.unwrap();
            }
            if n % 2_000 == 0 {
                tokio::time::sleep(Duration::from_millis(150)).await;
            }
        }
        client.flush().await;
    };
    tally.live_through(sending, Duration::from_millis(900)).await;
    let url = &tally.process.url;
    wait_until(url, "view/sent:0", unix_ms()).await;
    tokio::time::sleep(Duration::from_secs(1)).await; // what is cached is older than it may be
    let mut sum = 0;
    for n in 0..7 {
        sum += total(url, &format!("view/sent:{n}")).await.parse::<i64>().unwrap();
    }
    assert_eq!(sum, 120_000);
    assert_eq!(total(url, "view/sent:own").await, "1");
    assert_eq!(total(url, "like/sent:0").await, "100");

    let refused = client.send(Event::add("nope", "a")).await.unwrap();
    let taken = client.send(Event::add("view", "a")).await.unwrap();
    let refused = refused.durable().await.unwrap_err();
    assert!(matches!(refused, SendError::Refused { code, .. } if code == "unknown_kind"));
    assert_eq!(taken.durable().await, Ok(()));

    let example = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--package", "tally-client", "--example", "count", "--", url])
        .current_dir(root())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&example.stdout);
    assert!(example.status.success() && said.contains("unknown_kind"), "{example:?}");
    assert!(tally.process.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_gives_up_in_the_end_and_says_so() {
    let client = Client::builder("http://127.0.0.1:1").give_up_after(Duration::from_millis(300));
    let sent = client.build().send(Event::add("view", "a")).await.unwrap();
    assert!(matches!(sent.durable().await, Err(SendError::GaveUp(_))));
}
