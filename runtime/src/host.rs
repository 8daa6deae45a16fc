//! How a process starts, fails and ends.
//!
//! [`run`] installs the TLS provider and the log, calls the program with a [`Host`], and on SIGTERM or SIGINT cancels
//! [`Host::shutdown`]: the program stops taking work and returns when the work at hand is done. It has [`DRAIN`] for that. A second
//! signal ends the process at once.
//!
//! A panic is a fault of the program. In a task without which the process is useless ([`Host::spawn`]) it ends the process with exit
//! code 1, since nobody else would notice that its work is no longer done. In the work of one call, one connection or one tenant
//! ([`Host::spawn_contained`], [`Host::contain`]) it ends only that: what one caller sends must not end the service of all others.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::health::{Gate, Health};
use crate::log::LogArgs;

/// How long work may go on after a signal; shorter than the 30 s after which Kubernetes kills a pod.
pub const DRAIN: Duration = Duration::from_secs(20);

type Config = Arc<dyn Fn() -> serde_json::Value + Send + Sync>;

/// What a process gives to its parts.
#[derive(Clone)]
pub struct Host {
    shared: Arc<Shared>,
}

struct Shared {
    shutdown: CancellationToken,
    drained: CancellationToken,
    tasks: TaskTracker,
    health: Health,
    registry: Mutex<Registry>,
    configz: Mutex<Vec<(String, Config)>>,
    failure: Mutex<Option<String>>,
    panics: Counter,
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl Host {
    /// A host of its own, for tests; programs get theirs from [`run`].
    pub fn new() -> Self {
        let (mut registry, panics) = (Registry::default(), Counter::default());
        let help = "Calls, connections, rounds and work on single objects that ended by a panic; each is a fault of the program";
        registry.register("process_contained_panics", help, panics.clone());
        Self {
            shared: Arc::new(Shared {
                shutdown: CancellationToken::new(),
                drained: CancellationToken::new(),
                tasks: TaskTracker::new(),
                health: Health::default(),
                registry: Mutex::new(registry),
                configz: Mutex::default(),
                failure: Mutex::default(),
                panics,
            }),
        }
    }

    /// Cancelled when the process should end. Every loop selects on it.
    pub fn shutdown(&self) -> CancellationToken {
        self.shared.shutdown.clone()
    }

    /// Cancelled when the work at hand is done, which is later than [`Host::shutdown`]: until then probes are answered.
    pub fn drained(&self) -> CancellationToken {
        self.shared.drained.clone()
    }

    /// Runs a task that the end of the process waits for. If it panics, the process ends.
    #[expect(clippy::disallowed_methods, reason = "this is the place that spawns")]
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let host = self.clone();
        let running = tokio::spawn(tracing::Instrument::in_current_span(task));
        self.shared.tasks.spawn(async move {
            if running.await.is_err_and(|error| error.is_panic()) {
                host.fail(format!("task {name} panicked; this is a fault of the program"));
            }
        });
    }

    /// Runs a task of one call or one connection, that the end of the process waits for. If it panics, only it ends.
    pub fn spawn_contained(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let host = self.clone();
        self.spawn(name, async move {
            // Whoever waits for its result sees that none comes.
            let _ = host.contain(name, task).await;
        });
    }

    /// Waits for work that may panic; nothing if it did, which is logged and counted.
    pub fn contain<T>(
        &self,
        name: &'static str,
        work: impl Future<Output = T>,
    ) -> impl Future<Output = Option<T>> {
        self.poll_caught(name, None, work)
    }

    /// The same for work on one object, which the log names.
    pub fn contain_on<T>(
        &self,
        name: &'static str,
        object: &str,
        work: impl Future<Output = T>,
    ) -> impl Future<Output = Option<T>> {
        self.poll_caught(name, Some(object), work)
    }

    /// Does what may panic; nothing if it did, which is logged and counted.
    pub fn contained<T>(&self, name: &'static str, work: impl FnOnce() -> T) -> Option<T> {
        self.caught(name, None, work)
    }

    /// Boxed, so that work that contains other work does not become as large as all of it together.
    fn poll_caught<T>(
        &self,
        name: &'static str,
        object: Option<&str>,
        work: impl Future<Output = T>,
    ) -> impl Future<Output = Option<T>> {
        let mut work = Box::pin(work);
        std::future::poll_fn(
            move |cx| match self.caught(name, object, || work.as_mut().poll(cx)) {
                Some(poll) => poll.map(Some),
                None => Poll::Ready(None),
            },
        )
    }

    fn caught<T>(&self, name: &'static str, object: Option<&str>, work: impl FnOnce() -> T) -> Option<T> {
        let done = std::panic::catch_unwind(AssertUnwindSafe(work));
        done.inspect_err(|_| {
            self.shared.panics.inc();
            tracing::error!(
                task = name,
                object,
                "a task panicked and was given up; this is a fault of the program"
            );
        })
        .ok()
    }

    /// Ends the process with exit code 1 and this line. The first failure is the one that is told.
    pub fn fail(&self, text: impl Into<String>) {
        let text = text.into();
        tracing::error!(fault = %text, "ending the process");
        self.shared.failure.lock().get_or_insert(text);
        self.shared.shutdown.cancel();
    }

    /// Checks and gates of this process.
    pub fn health(&self) -> &Health {
        &self.shared.health
    }

    /// A gate of `/readyz`, closed until it is opened.
    pub fn gate(&self, name: impl Into<String>) -> Gate {
        self.shared.health.gate(name)
    }

    /// Registers metrics.
    pub fn metrics<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.shared.registry.lock())
    }

    /// Adds a part of `/configz`. The value must hold no secret.
    pub fn configz(
        &self,
        name: impl Into<String>,
        value: impl Fn() -> serde_json::Value + Send + Sync + 'static,
    ) {
        self.shared.configz.lock().push((name.into(), Arc::new(value)));
    }

    /// All metrics in `OpenMetrics` text format.
    pub fn scrape(&self) -> String {
        let mut text = String::new();
        if prometheus_client::encoding::text::encode(&mut text, &self.shared.registry.lock()).is_err() {
            tracing::error!("metrics could not be written");
        }
        text
    }

    pub(crate) fn configuration(&self) -> serde_json::Value {
        let parts = self.shared.configz.lock().clone();
        serde_json::Value::Object(parts.into_iter().map(|(name, value)| (name, value())).collect())
    }

    /// Ends the tasks, as the end of the process does; returns the failure, if one was told.
    pub async fn finish(&self, within: Duration) -> Option<String> {
        self.shared.shutdown.cancel();
        self.shared.drained.cancel();
        self.shared.tasks.close();
        if tokio::time::timeout(within, self.shared.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("some work did not end in time");
        }
        self.shared.failure.lock().clone()
    }
}

/// Makes `ring` the TLS provider of the process. Programs get it from [`run`]; tests call it themselves.
pub fn install_tls_provider() {
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        tracing::trace!("a TLS provider is installed already");
    }
}

/// Runs a program until it returns, fails or is told to end.
///
/// Exit code 0 after a signal or when the program is done, 1 after a failure, which is told in one line on standard error.
pub fn run<F>(name: &'static str, log: &LogArgs, program: impl FnOnce(Host) -> F) -> ExitCode
where
    F: Future<Output = anyhow::Result<()>>,
{
    install_tls_provider();
    log.start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return ended(name, Err(format!("the async runtime can't be started: {error}"))),
    };
    let host = Host::new();
    let result = runtime.block_on(drive(&host, program(host.clone())));
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended(name, result)
}

async fn drive(host: &Host, program: impl Future<Output = anyhow::Result<()>>) -> Result<(), String> {
    host.spawn("signals", wait_for_signals(host.clone()));
    let shutdown = host.shutdown();
    let overtime = async {
        shutdown.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    let result = tokio::select! {
        result = program => result.map_err(|error| crate::log::chain(error.as_ref())),
        () = overtime => {
            tracing::warn!("work at hand did not end within the drain time");
            Ok(())
        }
    };
    let failure = host.finish(Duration::from_secs(5)).await;
    result.and_then(|()| failure.map_or(Ok(()), Err))
}

async fn wait_for_signals(host: Host) {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::error!("signals can't be received");
        return;
    };
    let shutdown = host.shutdown();
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = shutdown.cancelled() => return,
    }
    tracing::info!("told to end, finishing the work at hand");
    shutdown.cancel();
    host.shared.health.gate("running").close("the process is ending");
}

#[expect(
    clippy::print_stderr,
    reason = "the last line of a failed process must be seen even where logging is off"
)]
fn ended(name: &str, result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{name}: {text}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panicking_task_ends_the_process_with_its_name() {
        let host = Host::new();
        host.spawn("worker", async { panic!("boom") });
        host.shutdown().cancelled().await;
        let failure = host.finish(Duration::from_secs(5)).await.expect("a failure");
        assert!(failure.contains("worker"), "{failure}");
    }

    #[tokio::test]
    async fn a_contained_panic_ends_only_its_task_and_is_counted() {
        let host = Host::new();
        let (send, receive) = tokio::sync::oneshot::channel::<()>();
        host.spawn_contained("call", async move {
            let _send = send;
            tokio::task::yield_now().await;
            panic!("boom")
        });
        assert!(receive.await.is_err(), "whoever waits is told");
        assert_eq!(host.contain("round", async { panic!("boom") }).await, None::<()>);
        assert_eq!(host.contain("round", async { 7 }).await, Some(7));
        assert_eq!(host.contain_on("node", "a", async { 8 }).await, Some(8));
        assert!(!host.shutdown().is_cancelled());
        assert!(
            host.scrape().contains("process_contained_panics_total 2"),
            "{}",
            host.scrape()
        );
        assert_eq!(host.finish(Duration::from_secs(5)).await, None);
    }

    #[tokio::test]
    async fn the_first_failure_is_the_one_that_is_told() {
        let host = Host::new();
        host.fail("lease lost");
        host.fail("something after it");
        assert_eq!(
            host.finish(Duration::from_secs(1)).await.as_deref(),
            Some("lease lost")
        );
    }

    #[tokio::test]
    async fn the_end_waits_for_tasks() {
        let host = Host::new();
        let (done, seen) = tokio::sync::oneshot::channel();
        let shutdown = host.shutdown();
        host.spawn("worker", async move {
            shutdown.cancelled().await;
            let _ = done.send(());
        });
        assert_eq!(host.finish(Duration::from_secs(5)).await, None);
        assert_eq!(seen.await, Ok(()));
    }
}
