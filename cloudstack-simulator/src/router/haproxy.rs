//! The data path of routers: one HAProxy per router, configured as the virtual router configures it.
//!
//! Public addresses and machines are loopback addresses. Only load balancing is real; a port that no firewall rule opens is not bound at all, so that clients
//! see a refused connection. Network ACLs don't filter load-balanced traffic on the real router, and they don't here.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::process::{Child, Command as Process};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::process::{closed, on_path, retire};
use super::{Router, RouterFirewallRule, RouterRule};
use crate::options::DataPath;

/// How long a new HAProxy may take until it listens.
const START: Duration = Duration::from_secs(5);

/// All running `HAProxy` processes.
#[derive(Debug)]
pub(crate) struct DataPlane {
    program: PathBuf,
    directory: PathBuf,
    running: Mutex<HashMap<Uuid, Running>>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    configuration: String,
    generation: u64,
}

impl DataPlane {
    /// Finds the program. None: no data path, on purpose or because there is no HAProxy.
    pub(crate) fn open(path: &DataPath) -> Option<Self> {
        let program = match path {
            DataPath::Off => return None,
            DataPath::Program(program) => program.clone(),
            DataPath::Auto => on_path("haproxy")?,
        };
        // HAProxy takes socket paths of at most 97 bytes.
        let directory = std::env::temp_dir().join(format!("cs-sim-{}", short(crate::jobs::new_id())));
        std::fs::create_dir_all(&directory).ok()?;
        Some(Self {
            program,
            directory,
            running: Mutex::default(),
        })
    }

    /// Makes a router's HAProxy match its state. A configuration that HAProxy refuses leaves the old one running.
    pub(crate) async fn apply(&self, router: Uuid, state: &Router) {
        let mut running = self.running.lock().await;
        let body = proxies(state);
        let old = running.remove(&router);
        if body.is_empty() {
            if let Some(mut old) = old {
                let _ = old.child.kill().await;
            }
            return;
        }
        if let Some(old) = old.as_ref().filter(|old| old.configuration == body) {
            tracing::trace!(%router, generation = old.generation, "data path unchanged");
        } else {
            let generation = old.as_ref().map_or(1, |old| old.generation + 1);
            let replaced = old.as_ref().and_then(|old| old.child.id());
            match self.start(router, &body, (generation, replaced)).await {
                Ok(child) => {
                    // The new process told the old one to finish its connections; it ends by itself.
                    if let Some(old) = old {
                        closed(&old.child).await;
                        retire(old.child);
                    }
                    running.insert(
                        router,
                        Running {
                            child,
                            configuration: body,
                            generation,
                        },
                    );
                    return;
                }
                Err(error) => {
                    tracing::warn!(%router, %error, "haproxy refused the configuration, the old one stays");
                }
            }
        }
        if let Some(old) = old {
            running.insert(router, old);
        }
    }

    async fn start(
        &self,
        router: Uuid,
        body: &str,
        (generation, replaced): (u64, Option<u32>),
    ) -> std::io::Result<Child> {
        let file = self.directory.join(format!("{router}.cfg"));
        let socket = self.socket(router, generation);
        let messages = File::create(self.directory.join(format!("{router}.log")))?;
        std::fs::write(&file, format!("{}{body}", head(&socket)))?;
        let mut process = Process::new(&self.program);
        process
            .arg("-db")
            .arg("-f")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(messages)
            .kill_on_drop(true);
        if let Some(pid) = replaced {
            // Listening sockets go from the old process to the new one, so that no connection is lost.
            let old = self.socket(router, generation.saturating_sub(1));
            process.arg("-x").arg(old).arg("-sf").arg(pid.to_string());
        }
        let mut child = process.spawn()?;
        let listening = async {
            while UnixStream::connect(&socket).await.is_err() {
                if let Ok(Some(status)) = child.try_wait() {
                    return Err(std::io::Error::other(format!(
                        "it ended with {status}; see {}",
                        file.display()
                    )));
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        };
        match tokio::time::timeout(START, listening).await {
            Ok(Ok(())) => Ok(child),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(std::io::Error::other("it does not listen")),
        }
    }

    fn socket(&self, router: Uuid, generation: u64) -> PathBuf {
        self.directory
            .join(format!("{}-{generation}.sock", short(router)))
    }

    /// Ends all of them.
    pub(crate) async fn stop(&self) {
        for (_, mut running) in self.running.lock().await.drain() {
            let _ = running.child.kill().await;
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The first eight digits of an id.
fn short(id: impl std::fmt::Display) -> String {
    id.to_string().chars().take(8).collect()
}

/// Global part: the socket shows that this process listens.
fn head(socket: &Path) -> String {
    format!(
        "global\n    stats socket {} mode 600 level admin expose-fd listeners\n    maxconn 4096\n    hard-stop-after 4s\n\ndefaults\n    mode tcp\n    retries 3\n    option redispatch\n    \
         timeout connect 5s\n    timeout client 50s\n    timeout server 50s\n",
        socket.display()
    )
}

/// One section per load balancer rule that clients can reach.
pub(crate) fn proxies(state: &Router) -> String {
    let mut text = String::new();
    let rules: BTreeMap<(&str, u16), &RouterRule> = state
        .balancers
        .values()
        .flatten()
        .map(|rule| ((rule.address.as_str(), rule.port), rule))
        .collect();
    for rule in rules
        .values()
        .filter(|rule| rule.port > 0 && rule.protocol.as_deref() != Some("udp"))
    {
        if let Some(sources) = open_to(state, rule) {
            section(&mut text, rule, &sources);
        }
    }
    text
}

/// Sources that the firewall lets through to a rule. None: nobody.
fn open_to(state: &Router, rule: &RouterRule) -> Option<Vec<String>> {
    if state.vpc {
        return Some(Vec::new());
    }
    let covers = |of: &&RouterFirewallRule| {
        of.protocol == "tcp"
            && of
                .ports
                .is_none_or(|(first, last)| first <= rule.port && rule.port <= last)
    };
    let opening: Vec<&RouterFirewallRule> =
        state.firewall.get(&rule.address)?.iter().filter(covers).collect();
    if opening.is_empty() {
        return None;
    }
    let sources: Vec<String> = opening.iter().flat_map(|of| of.sources.iter().cloned()).collect();
    if sources.iter().any(|source| source == "0.0.0.0/0") {
        Some(Vec::new())
    } else {
        Some(sources)
    }
}

fn section(text: &mut String, rule: &RouterRule, firewall: &[String]) {
    let name = format!("{}-{}", rule.address.replace(['.', ':'], "_"), rule.port);
    let proxied = rule.protocol.as_deref() == Some("tcp-proxy");
    let _ = write!(
        text,
        "\nlisten {name}\n    bind {}:{}\n    balance {}\n",
        rule.address,
        rule.port,
        rule.algorithm.to_lowercase()
    );
    if rule.port == 80 && !proxied {
        text.push_str("    mode http\n    option httpclose\n");
    }
    if !firewall.is_empty() {
        let _ = writeln!(
            text,
            "    tcp-request connection reject unless {{ src {} }}",
            firewall.join(" ")
        );
    }
    if let Some(sources) = &rule.sources {
        let _ = writeln!(
            text,
            "    acl network_allowed src {sources}\n    tcp-request connection reject if !network_allowed"
        );
    }
    if rule
        .stickiness
        .as_ref()
        .is_some_and(|method| method.eq_ignore_ascii_case("SourceBased"))
    {
        text.push_str("    stick-table type ip size 200k expire 30m\n    stick on src\n");
    }
    for (number, (address, port)) in rule.members.iter().enumerate() {
        let _ = writeln!(
            text,
            "    server {name}-{number} {address}:{port} check{}",
            if proxied { " send-proxy" } else { "" }
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(protocol: Option<&str>, sources: Option<&str>) -> RouterRule {
        RouterRule {
            id: Uuid::nil(),
            address: "127.100.0.10".into(),
            port: 8080,
            protocol: protocol.map(str::to_owned),
            algorithm: "roundrobin".into(),
            sources: sources.map(str::to_owned),
            stickiness: None,
            members: vec![("127.101.0.11".into(), 30080)],
            leaving: Vec::new(),
            revoked: false,
        }
    }

    fn router(rule: RouterRule, firewall: &[((u16, u16), &str)]) -> Router {
        let rules = firewall.iter().map(|(ports, source)| RouterFirewallRule {
            id: Uuid::nil(),
            protocol: "tcp".into(),
            ports: Some(*ports),
            sources: vec![(*source).to_owned()],
            known: false,
            revoked: false,
        });
        let mut router = Router::default();
        router.firewall.insert(rule.address.clone(), rules.collect());
        router.balancers.insert(Uuid::nil(), vec![rule]);
        router
    }

    #[test]
    fn a_port_that_no_firewall_rule_opens_is_not_bound() {
        assert_eq!(proxies(&router(rule(None, None), &[])), "");
        assert_eq!(proxies(&router(rule(None, None), &[((80, 90), "0.0.0.0/0")])), "");
    }

    #[test]
    fn an_open_port_has_its_members_with_health_checks() {
        let text = proxies(&router(rule(None, None), &[((8000, 9000), "0.0.0.0/0")]));
        assert!(text.contains("bind 127.100.0.10:8080"), "{text}");
        assert!(text.contains("127.101.0.11:30080 check\n"), "{text}");
        assert!(!text.contains("reject"), "{text}");
    }

    #[test]
    fn firewall_sources_and_the_rules_own_list_both_restrict() {
        let text = proxies(&router(
            rule(None, Some("10.0.0.0/8 127.0.0.0/8")),
            &[((8080, 8080), "127.0.0.1/32")],
        ));
        assert!(text.contains("reject unless { src 127.0.0.1/32 }"), "{text}");
        assert!(
            text.contains("acl network_allowed src 10.0.0.0/8 127.0.0.0/8"),
            "{text}"
        );
    }

    #[test]
    fn tcp_proxy_sends_the_proxy_header() {
        let text = proxies(&router(
            rule(Some("tcp-proxy"), None),
            &[((8080, 8080), "0.0.0.0/0")],
        ));
        assert!(text.contains("check send-proxy"), "{text}");
    }

    #[test]
    fn a_vpc_needs_no_firewall_rule() {
        let router = Router {
            vpc: true,
            ..router(rule(None, None), &[])
        };
        assert!(proxies(&router).contains("bind 127.100.0.10:8080"));
    }
}
