//! The accept loop. `axum::serve` sets no timer, so a client that dribbles would hold on for ever.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use futures::future::{Either, select};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::clock;
use crate::http::Problem;
use crate::stopper::Stopper;

/// What one client may cost.
#[derive(Debug, Clone, Copy)]
pub struct HttpLimits {
    /// Open connections; one more is closed at once.
    pub connections: usize,
    /// For the head of a request, and for a kept connection that asks nothing.
    pub header_timeout: Duration,
    /// From the end of the stop signal to the end of every request.
    pub drain_timeout: Duration,
    /// Streams of one HTTP/2 connection.
    pub streams: u32,
}

impl Default for HttpLimits {
    fn default() -> Self {
        HttpLimits {
            connections: 10_000,
            header_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(10),
            streams: 256,
        }
    }
}

/// A port that is open but not served yet.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    /// Where it listens; the port is a real one even if 0 was asked for.
    pub address: SocketAddr,
}

/// Opens a port.
pub async fn bind(address: &str) -> anyhow::Result<Listening> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| anyhow::anyhow!("cannot listen on {address}: {error}"))?;
    let address = listener.local_addr()?;
    Ok(Listening { listener, address })
}

/// Serves until the stopper is pulled, then lets open requests end.
pub async fn serve(listening: Listening, router: Router, limits: HttpLimits, stopper: Stopper) {
    let router = router
        .fallback(|| async { Problem::not_found() })
        .method_not_allowed_fallback(|| async { Problem::method_not_allowed() });
    let service = TowerToHyperService::new(router);
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .keep_alive_interval(limits.header_timeout)
        .keep_alive_timeout(limits.header_timeout);
    let builder = Arc::new(builder);
    let graceful = GracefulShutdown::new();
    let permits = Arc::new(Semaphore::new(limits.connections));
    loop {
        let stream = tokio::select! {
            accepted = listening.listener.accept() => accepted,
            () = stopper.stopped() => break,
        };
        let Some(stream) = usable(stream).await else { continue };
        let Ok(permit) = permits.clone().try_acquire_owned() else { continue };
        let asked = Arc::new(AtomicBool::new(false));
        let service = {
            let (service, asked) = (service.clone(), asked.clone());
            service_fn(move |request| {
                asked.store(true, Ordering::Relaxed);
                service.call(request)
            })
        };
        let builder = builder.clone();
        let watcher = graceful.watcher();
        tokio::spawn(async move {
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            let connection = pin!(watcher.watch(connection.into_owned()));
            let silence = pin!(silence(&asked, limits.header_timeout));
            if let Either::Left((Err(error), _)) = select(connection, silence).await {
                tracing::debug!(error = error.as_ref(), "a connection ended early");
            }
            drop(permit);
        });
    }
    drop(listening);
    if clock::timeout(limits.drain_timeout, graceful.shutdown()).await.is_err() {
        tracing::warn!("some connections did not end in time");
    }
}

/// Ready if no request was asked in time: while the protocol is not known yet, no timer of the
/// protocol runs.
async fn silence(asked: &AtomicBool, limit: Duration) {
    clock::sleep(limit).await;
    if asked.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

/// The accepted stream; when the process is out of files, waits a little instead of spinning.
async fn usable(accepted: std::io::Result<(TcpStream, SocketAddr)>) -> Option<TcpStream> {
    match accepted {
        Ok((stream, _)) => {
            stream.set_nodelay(true).ok();
            Some(stream)
        }
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            clock::sleep(Duration::from_millis(50)).await;
            None
        }
    }
}
