//! Counts views and a like: `cargo run -p tally-client --example count -- http://127.0.0.1:8080`.

use tally_client::{Client, Event, SendError};

#[tokio::main]
async fn main() -> Result<(), SendError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());
    let client = Client::builder(&url).build();
    for n in 0..1_000 {
        client.send(Event::add("view", &format!("example:{}", n % 10))).await?;
    }
    let like = client.send(Event::set("like", "example:0", "user:9")).await?;
    like.durable().await?;
    let wrong = client.send(Event::add("nobody-declared-it", "example:0")).await?;
    match wrong.durable().await {
        Err(SendError::Refused { code, .. }) => println!("as it should be: {code}"),
        other => println!("unexpected: {other:?}"),
    }
    client.flush().await;
    println!("1,000 views and a like are in the log");
    Ok(())
}
