//! The demo's output: numbered steps with their time and their CloudStack calls.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use e2e::proxy::Proxy;
use e2e::wait;

/// The steps so far.
#[derive(Debug)]
pub(crate) struct Steps {
    begun: Instant,
    step: Instant,
    mark: usize,
    /// The proxy that counts, once there is one.
    pub(crate) api: Option<Proxy>,
    done: Vec<(String, Duration)>,
    skipped: Vec<String>,
}

impl Default for Steps {
    fn default() -> Self {
        let now = wait::now();
        Self {
            begun: now,
            step: now,
            mark: 0,
            api: None,
            done: Vec::new(),
            skipped: Vec::new(),
        }
    }
}

impl Steps {
    /// Does one step and prints how it went.
    pub(crate) async fn step<T>(
        &mut self,
        title: &str,
        work: impl Future<Output = Result<(T, Vec<String>)>>,
    ) -> Result<T> {
        let number = self.done.len() + self.skipped.len() + 1;
        say(&format!("\n{number}. {title}"));
        self.step = wait::now();
        self.mark = self.api.as_ref().map_or(0, Proxy::mark);
        let (value, lines) = work.await.with_context(|| format!("step {number}, {title}"))?;
        let took = self.step.elapsed();
        for line in lines {
            say(&format!("   {line}"));
        }
        if let Some(api) = &self.api {
            say(&format!("   CloudStack: {}", api.since(self.mark)));
        }
        say(&format!("   took {:.1} s", took.as_secs_f32()));
        self.done.push((title.to_owned(), took));
        Ok(value)
    }

    /// A step that can't be shown here.
    pub(crate) fn skip(&mut self, title: &str, why: &str) {
        let number = self.done.len() + self.skipped.len() + 1;
        say(&format!("\n{number}. {title}\n   SKIPPED: {why}"));
        self.skipped.push(title.to_owned());
    }

    /// Prints the end.
    pub(crate) fn summary(&self, result: &Result<()>) {
        let total = self.begun.elapsed().as_secs_f32();
        say(&format!(
            "\n{} steps done, {} skipped, {total:.1} s",
            self.done.len(),
            self.skipped.len()
        ));
        match result {
            Ok(()) => say("The demo is complete."),
            Err(error) => say(&format!("The demo failed in {error:#}")),
        }
    }
}

/// Prints a line.
#[expect(clippy::print_stdout, reason = "the demo is there to be read")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

/// Waits for Ctrl-C.
pub(crate) async fn until_interrupted() -> Result<()> {
    say("\nEverything keeps running. Ctrl-C ends it.");
    tokio::signal::ctrl_c().await?;
    Ok(())
}
