//! When a process is alive and ready.
//!
//! A *check* says whether the process itself works; a failing one makes `/livez` and `/healthz` fail, so it must never depend
//! on the cloud or on another process. A *gate* says whether a part can do its work; `/readyz` wants them all open.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;
/// Name, endpoint and result of a check.
type Count = (String, &'static str, &'static str);

/// Checks and gates of one process.
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<Mutex<BTreeMap<String, Check>>>,
    gates: Arc<Mutex<BTreeMap<String, Result<(), String>>>>,
    /// How often which result was told.
    counts: Arc<Mutex<BTreeMap<Count, u64>>>,
}

/// What an endpoint answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Everything is well.
    pub ok: bool,
    /// `ok`, or one line for every check.
    pub text: String,
}

/// Says whether one part of the process can do its work.
#[derive(Clone)]
pub struct Gate {
    name: String,
    gates: Arc<Mutex<BTreeMap<String, Result<(), String>>>>,
}

impl Gate {
    /// The part works.
    pub fn open(&self) {
        self.gates.lock().insert(self.name.clone(), Ok(()));
    }

    /// The part does not work, and why.
    pub fn close(&self, why: impl Into<String>) {
        self.gates.lock().insert(self.name.clone(), Err(why.into()));
    }
}

impl Health {
    /// Adds a check of the process itself. A second one of the same name replaces the first.
    pub fn check(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.checks.lock().insert(name.into(), Arc::new(check));
    }

    /// Adds a gate, closed until it is opened.
    pub fn gate(&self, name: impl Into<String>) -> Gate {
        let gate = Gate {
            name: name.into(),
            gates: Arc::clone(&self.gates),
        };
        gate.close("not started yet");
        gate
    }

    /// Whether the process is alive. `exclude` names checks that don't count.
    pub fn alive(&self, verbose: bool, exclude: &[&str]) -> Report {
        self.told("healthz", self.checked(), verbose, exclude)
    }

    /// Whether the process can do its work.
    pub fn ready(&self, verbose: bool, exclude: &[&str]) -> Report {
        self.told(
            "readyz",
            self.gates.lock().clone().into_iter().collect(),
            verbose,
            exclude,
        )
    }

    /// Every check and gate as it is now, and how often each result was told, in the metrics that Kubernetes' own programs have
    /// for it.
    pub fn slis(&self) -> String {
        let mut text = String::from(
            "# HELP kubernetes_healthcheck Result of each check, 1 if it is well\n# TYPE kubernetes_healthcheck gauge\n",
        );
        let gates = self.gates.lock().clone();
        let checks = self.checked().into_iter().map(|result| ("healthz", result));
        let gates = gates.into_iter().map(|result| ("readyz", result));
        for (kind, (name, result)) in checks.chain(gates) {
            let well = u8::from(result.is_ok());
            // Writing to a string can't fail.
            let _ = writeln!(
                text,
                "kubernetes_healthcheck{{name=\"{name}\",type=\"{kind}\"}} {well}"
            );
        }
        text.push_str(
            "# HELP kubernetes_healthchecks_total Results that were told\n# TYPE kubernetes_healthchecks_total counter\n",
        );
        for ((name, kind, status), count) in self.counts.lock().iter() {
            let _ = writeln!(
                text,
                "kubernetes_healthchecks_total{{name=\"{name}\",status=\"{status}\",type=\"{kind}\"}} {count}"
            );
        }
        text
    }

    fn checked(&self) -> Vec<(String, Result<(), String>)> {
        let checks: Vec<(String, Check)> = self
            .checks
            .lock()
            .iter()
            .map(|(name, check)| (name.clone(), Arc::clone(check)))
            .collect();
        checks.into_iter().map(|(name, check)| (name, check())).collect()
    }

    fn told(
        &self,
        kind: &'static str,
        results: Vec<(String, Result<(), String>)>,
        verbose: bool,
        exclude: &[&str],
    ) -> Report {
        let mut counts = self.counts.lock();
        for (name, result) in &results {
            let status = if result.is_ok() { "success" } else { "error" };
            *counts.entry((name.clone(), kind, status)).or_default() += 1;
        }
        drop(counts);
        report(results.into_iter(), verbose, exclude)
    }
}

fn report(
    results: impl Iterator<Item = (String, Result<(), String>)>,
    verbose: bool,
    exclude: &[&str],
) -> Report {
    let mut ok = true;
    let mut lines = String::new();
    for (name, result) in results.filter(|(name, _)| !exclude.contains(&name.as_str())) {
        let line = match &result {
            Ok(()) => format!("[+]{name} ok"),
            Err(why) => format!("[-]{name} failed: {why}"),
        };
        ok &= result.is_ok();
        // Writing to a string can't fail.
        let _ = writeln!(lines, "{line}");
    }
    let text = if ok && !verbose { "ok".to_owned() } else { lines };
    Report { ok, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_checks_is_alive_and_says_ok() {
        assert_eq!(
            Health::default().alive(false, &[]),
            Report {
                ok: true,
                text: "ok".into()
            }
        );
    }

    #[test]
    fn a_failing_check_is_named_with_its_reason() {
        let health = Health::default();
        health.check("leaderElection", || Err("not renewed for 40 s".into()));
        let report = health.alive(false, &[]);
        assert!(!report.ok);
        assert_eq!(report.text, "[-]leaderElection failed: not renewed for 40 s\n");
    }

    #[test]
    fn an_excluded_check_does_not_count() {
        let health = Health::default();
        health.check("a", || Err("broken".into()));
        assert!(health.alive(false, &["a"]).ok);
    }

    #[test]
    fn a_gate_is_closed_until_it_is_opened() {
        let health = Health::default();
        let gate = health.gate("broker");
        assert!(!health.ready(false, &[]).ok);
        gate.open();
        assert!(health.ready(false, &[]).ok);
        gate.close("connection refused");
        assert_eq!(
            health.ready(false, &[]).text,
            "[-]broker failed: connection refused\n"
        );
    }

    #[test]
    fn every_check_and_gate_shows_as_it_is_and_how_often_it_was_told() {
        let health = Health::default();
        health.check("leaderElection", || Ok(()));
        let gate = health.gate("broker");
        health.alive(false, &[]);
        health.alive(true, &[]);
        health.ready(false, &[]);
        gate.open();
        health.ready(false, &[]);
        let text = health.slis();
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                r#"kubernetes_healthcheck{name="leaderElection",type="healthz"} 1"#,
                r#"kubernetes_healthcheck{name="broker",type="readyz"} 1"#,
                r#"kubernetes_healthchecks_total{name="broker",status="error",type="readyz"} 1"#,
                r#"kubernetes_healthchecks_total{name="broker",status="success",type="readyz"} 1"#,
                r#"kubernetes_healthchecks_total{name="leaderElection",status="success",type="healthz"} 2"#,
            ]
        );
    }
}
