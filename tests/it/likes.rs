//! Likes count once: whoever repeats, retries, takes back or crashes, a total is the number of
//! actors that are in, and everybody is where they put themselves last.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use crate::support::{Mortal, Site, get, post_until_answered, unix_ms, wait_until};

/// Subjects that the world likes, and subjects that few do.
const HOT: usize = 3;
const COLD: usize = 300;
const ACTORS: usize = 1_500;

/// An act: subject, actor, in or out.
type Act = (String, String, bool);

/// Rounds of acts, to be sent one after the other: within one, no actor contradicts itself.
fn rounds() -> Vec<Vec<Act>> {
    let mut rng = StdRng::seed_from_u64(6);
    let mut pairs = Vec::new();
    for hot in 0..HOT {
        pairs.extend((0..ACTORS).map(|actor| (format!("hot:{hot}"), format!("user:{actor}"))));
    }
    for cold in 0..COLD {
        for _ in 0..rng.random_range(1..4) {
            let actor = rng.random_range(0..ACTORS);
            pairs.push((format!("cold:{cold}"), format!("user:{actor}")));
        }
    }
    let mut some = |share: f64, comes_in: bool| -> Vec<Act> {
        let chosen = pairs.iter().filter(|_| rng.random_bool(share));
        chosen.map(|(subject, actor)| (subject.clone(), actor.clone(), comes_in)).collect()
    };
    vec![some(1.0, true), some(0.3, false), some(0.2, true), some(0.1, false)]
}

/// Sends a round twice, shuffled, again and again until each request was answered with success.
async fn send(url: impl Fn() -> String, round: &[Act], seed: u64) {
    let mut acts: Vec<&Act> = round.iter().chain(round).collect();
    acts.shuffle(&mut StdRng::seed_from_u64(seed));
    let client = reqwest::Client::new();
    for request in acts.chunks(100) {
        let line = |(subject, actor, comes_in): &&Act| {
            let op = if *comes_in { "set" } else { "unset" };
            let event = json!({ "kind": "like", "subject": subject, "actor": actor, "op": op });
            format!("{event}\n")
        };
        let body: String = request.iter().map(line).collect();
        post_until_answered(&client, &url, &body).await;
    }
}

fn truth(rounds: &[Vec<Act>]) -> BTreeMap<String, BTreeSet<String>> {
    let mut members: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (subject, actor, comes_in) in rounds.iter().flatten() {
        let members = members.entry(subject.clone()).or_default();
        if *comes_in {
            members.insert(actor.clone());
        } else {
            members.remove(actor);
        }
    }
    members
}

/// Who is in, page by page; each once.
async fn list(client: &reqwest::Client, url: &str, limit: usize) -> Vec<String> {
    let (mut listed, mut after) = (Vec::new(), String::new());
    loop {
        let page = get(client, &format!("{url}?limit={limit}{after}")).await;
        let actors: Vec<String> = serde_json::from_value(page["actors"].clone()).unwrap();
        assert!(actors.len() <= limit);
        listed.extend(actors);
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    listed.sort_unstable();
    listed
}

/// Every total, and everybody's place, against the truth.
async fn judge(reader: &str, rounds: &[Vec<Act>]) {
    let client = reqwest::Client::new();
    wait_until(reader, "like/hot:0", unix_ms()).await;
    tokio::time::sleep(Duration::from_secs(1)).await; // what is cached is older than it may be
    let truth = truth(rounds);
    for (subject, members) in &truth {
        let answer = get(&client, &format!("{reader}/v1/counters/like/{subject}")).await;
        assert_eq!(answer["total"], members.len().to_string(), "{answer}");
    }
    let hot: Vec<String> = (0..HOT).map(|hot| format!("hot:{hot}")).collect();
    for actor in (0..ACTORS).step_by(7).map(|actor| format!("user:{actor}")) {
        let url = format!("{reader}/v1/actors/{actor}/like?subjects={}", hot.join(","));
        let answer = get(&client, &url).await;
        for subject in &hot {
            assert_eq!(answer[subject], truth[subject].contains(&actor), "{actor} in {subject}");
        }
    }
    for (subject, limit) in [("hot:0", 190), ("cold:1", 2)] {
        let url = format!("{reader}/v1/counters/like/{subject}/actors");
        let listed = list(&client, &url, limit).await;
        let members: Vec<String> = truth[subject].iter().cloned().collect();
        assert_eq!(listed, members, "{subject}");
    }
    let subjects: Vec<&String> = truth.keys().collect();
    let url = format!("{reader}/v1/actors/user:7/like:read");
    let answer = client.post(url).json(&json!({ "subjects": subjects })).send().await.unwrap();
    let answer: BTreeMap<String, bool> = answer.json().await.unwrap();
    for (subject, members) in &truth {
        assert_eq!(answer[subject], members.contains("user:7"), "{subject}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn likes_are_exact_through_retries_and_kills_of_the_whole_process() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let settings =
        BTreeMap::from([("TALLY__DATA_DIR".to_owned(), folder.path().display().to_string())]);
    let rounds = rounds();
    let mut tally = Mortal::start(settings).await;
    for (seed, round) in (0..).zip(&rounds) {
        let url = tally.url.clone();
        let sending = send(|| url.lock().unwrap().clone(), round, seed);
        tally.live_through(sending, Duration::from_millis(1_100)).await;
    }
    judge(&tally.process.url, &rounds).await;
    assert!(tally.process.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn likes_are_exact_on_kafka_and_cassandra_through_kills_of_the_aggregator() {
    let site = Site::new("likes").await;
    let (ingest, reader) = (site.ingest().await, site.reader().await);
    let rounds = rounds();
    for (seed, round) in (0..).zip(&rounds) {
        let aggregator = site.assigned_aggregator().await;
        send(|| ingest.url.clone(), round, seed).await;
        aggregator.kill();
    }
    let zombie = site.assigned_aggregator().await;
    let aggregator = site.assigned_aggregator().await; // two at once write the same
    judge(&reader.url, &rounds).await;
    for process in [zombie, aggregator, ingest, reader] {
        assert!(process.stop().await.success());
    }
}
