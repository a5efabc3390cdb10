//! A client that costs little: prepared requests on kept connections, one in flight each.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A POST of a body.
pub(crate) fn post(path: &str, content_type: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: {content_type}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A GET.
pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").into_bytes()
}

/// Sends the requests in turn on each connection for a time; returns how many were answered 200.
pub(crate) fn drive(
    address: SocketAddr,
    requests: &[Vec<u8>],
    connections: usize,
    time: Duration,
) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let deadline = Instant::now() + time;
        let connections = (0..connections).map(|number| async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let mut answered = 0;
            let mut answer = Vec::with_capacity(64 << 10);
            let mut at = number * 7919;
            while Instant::now() < deadline {
                stream.write_all(&requests[at % requests.len()]).await.unwrap();
                at += 1;
                read_answer(&mut stream, &mut answer).await;
                assert!(
                    answer.starts_with(b"HTTP/1.1 200"),
                    "{}",
                    String::from_utf8_lossy(&answer)
                );
                answered += 1;
            }
            answered
        });
        join_all(connections).await
    })
}

async fn join_all(connections: impl Iterator<Item = impl Future<Output = u64>>) -> u64 {
    let local = tokio::task::LocalSet::new();
    let mut sum = 0;
    // Connections borrow the requests, so they are polled here rather than spawned.
    let mut pending: Vec<_> = connections.map(Box::pin).collect();
    local
        .run_until(std::future::poll_fn(|context| {
            pending.retain_mut(|connection| match connection.as_mut().poll(context) {
                std::task::Poll::Ready(answered) => {
                    sum += answered;
                    false
                }
                std::task::Poll::Pending => true,
            });
            if pending.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        }))
        .await;
    sum
}

/// Reads one answer: head, and as many bytes as it names.
async fn read_answer(stream: &mut TcpStream, answer: &mut Vec<u8>) {
    answer.clear();
    loop {
        assert!(stream.read_buf(answer).await.unwrap() > 0, "closed");
        let Some(head) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let text = std::str::from_utf8(&answer[..head]).unwrap();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.unwrap().trim().parse().unwrap();
        while answer.len() < head + 4 + length {
            assert!(stream.read_buf(answer).await.unwrap() > 0, "closed");
        }
        return;
    }
}
