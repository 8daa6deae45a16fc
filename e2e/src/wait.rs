//! Waiting for conditions, and the few places where this package looks at the clock or starts a task.

use std::fmt::Display;
use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

/// How often a condition is looked at again.
const PACE: Duration = Duration::from_millis(50);

/// Now. Measuring the world from outside needs the real clock.
#[expect(clippy::disallowed_methods, reason = "the harness measures real processes")]
pub fn now() -> Instant {
    Instant::now()
}

/// Seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "names and certificates of a run depend on the real date"
)]
pub fn unix_time() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_secs())
}

/// Runs a task beside the scenario; it ends with the runtime.
#[expect(
    clippy::disallowed_methods,
    reason = "servers and log readers of the harness live as long as the run"
)]
pub fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::spawn(task)
}

/// Asks `probe` until it gives a value. An error of the probe is not final: it is what the report says when time is up.
pub async fn until<T, F>(within: Duration, what: impl Display, mut probe: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let end = now() + within;
    let mut last: Option<anyhow::Error> = None;
    loop {
        match probe().await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => {}
            Err(error) => last = Some(error),
        }
        if now() >= end {
            let secs = within.as_secs_f32();
            return Err(match last {
                Some(error) => error.context(format!("not within {secs} s: {what}")),
                None => anyhow!("not within {secs} s: {what}"),
            });
        }
        tokio::time::sleep(PACE).await;
    }
}

/// Asks `probe` until it says why not no longer: `None` is success, `Some(reason)` goes into the report.
pub async fn until_holds<F>(within: Duration, what: impl Display, mut probe: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<Option<String>>>,
{
    until(within, what, || {
        let asked = probe();
        async move {
            match asked.await? {
                None => Ok(Some(())),
                Some(reason) => Err(anyhow!(reason)),
            }
        }
    })
    .await
}

/// Watches a condition for a while that must not change: the only way to see that nothing happens.
pub async fn stays<F>(during: Duration, what: impl Display, mut probe: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    let end = now() + during;
    while now() < end {
        if !probe().await? {
            return Err(anyhow!(
                "it did not stay so for {} s: {what}",
                during.as_secs_f32()
            ));
        }
        tokio::time::sleep(PACE).await;
    }
    Ok(())
}
