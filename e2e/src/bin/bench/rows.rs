//! How each row is measured. The rows of a suite are entered one by one.

use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::cloud::MACHINES;
use e2e::service::{Handle, Wanted};
use e2e::wait;
use e2e::world::World;
use kube::api::DeleteParams;
use serde_json::json;

use crate::subject::{Running, Subject};
use crate::suite::Suite;
use crate::table::{Cell, Table};

/// Peers with many nodes and 300 ms a call take their time.
const LONG: Duration = Duration::from_mins(30);

impl Suite {
    /// Runs it.
    pub(crate) async fn run(&self, world: &World, subject: Subject, table: &mut Table) -> Result<()> {
        let bench = &mut Bench {
            world,
            subject,
            table,
        };
        match *self {
            Self::Small => bench.small().await,
            Self::Large {
                nodes,
                services,
                idle,
            } => bench.large(nodes, services, idle).await,
            Self::RealSmall => bench.real_small().await,
            Self::RealSlow => bench.real_slow().await,
            Self::RealNodes => bench.real_nodes().await,
            Self::RealRestart => bench.real_restart().await,
        }
    }
}

/// A subject in its surroundings.
struct Bench<'a> {
    world: &'a World,
    subject: Subject,
    table: &'a mut Table,
}

impl<'a> Bench<'a> {
    async fn small(&mut self) -> Result<()> {
        let running = self
            .first_nodes(&MACHINES, "process start to 3 nodes initialised", "2 / 0 / 0")
            .await?;
        let mut services = Vec::new();
        // A fifth over the floor that the server's locks dictate: n x (firewall call + job) + n x create + one round of
        // assigns.
        for (ports, target) in [
            (1, "5 / 4 / 4, 5.9 s"),
            (5, "6 / 16 / 16, 18.4 s"),
            (20, "- / 61 / 61, 65.2 s"),
        ] {
            let row = format!("Service with {ports} port{}", if ports == 1 { "" } else { "s" });
            services.push(self.service(&row, target, ports).await?);
        }
        let web = services.first().context("a Service was made")?;
        self.measure("unrelated change of the Service", "no write", async {
            web.patch(
                json!({"metadata": {"labels": {"team": "blue"}, "annotations": {"example.org/note": "x"}}}),
            )
            .await?;
            Ok(())
        })
        .await?;
        for service in services {
            service.ask_delete().await?;
            service.gone(LONG).await?;
        }
        self.memory("memory, 3 nodes, 26 ports", &running)?;
        running.stop().await
    }

    async fn large(&mut self, nodes: usize, services: usize, idle: u32) -> Result<()> {
        let world = self.world;
        let names: Vec<_> = (1..=nodes).map(|number| format!("node-{number}")).collect();
        let row = format!("process start to {nodes} nodes initialised");
        let running = self.first_nodes(&names, &row, "2 / 0 / 0").await?;
        let mut made = Vec::new();
        for number in 0..services {
            made.push(
                world
                    .service(Wanted::new(&format!("web-{number}")).port(80))
                    .await?,
            );
        }
        for service in &made {
            service.address(LONG).await?;
        }
        self.settled(Duration::from_secs(3)).await?;
        let added = format!("node-{}", nodes + 1);
        self.measure(
            &format!("a node added with {services} Services"),
            "1 list + 1 assign a rule",
            async {
                world.cluster.register(&added).await?;
                members(world, &made, &added, true).await
            },
        )
        .await?;
        self.settled(Duration::from_secs(3)).await?;
        self.idle(idle, &format!("{nodes} nodes, {services} Services"))
            .await;
        self.memory("memory at the end", &running)?;
        running.stop().await
    }

    /// Nothing happens for so many minutes.
    async fn idle(&mut self, minutes: u32, what: &str) {
        let took = Duration::from_mins(minutes.into());
        let mark = self.world.api.mark();
        tokio::time::sleep(took).await;
        let counts = self.world.api.since(mark);
        let row = format!("idle for {minutes} min, {what}");
        let target = "a machine list a minute, (rules + 3) / 10 reads";
        self.table
            .enter(&row, target, self.subject, Cell { counts, took }.to_string());
    }

    async fn real_small(&mut self) -> Result<()> {
        let running = self
            .first_nodes(
                &MACHINES,
                "process start to 3 nodes initialised",
                "2 / 0 / 0, 0.5 s",
            )
            .await?;
        for (ports, target) in [(1, "5 / 4 / 4, 1 s"), (5, "6 / 16 / 16, 2.5 s")] {
            let row = format!("Service with {ports} port{}", if ports == 1 { "" } else { "s" });
            self.service(&row, target, ports).await?.delete(LONG).await?;
        }
        self.memory("memory, highest", &running)?;
        running.stop().await
    }

    async fn real_slow(&mut self) -> Result<()> {
        let running = self.with_nodes().await?;
        self.world.api.delay(Duration::from_millis(300));
        let service = self
            .service("Service with 5 ports, 300 ms a call", "9 s", 5)
            .await?;
        self.world.api.delay(Duration::ZERO);
        service.delete(LONG).await?;
        running.stop().await
    }

    async fn real_nodes(&mut self) -> Result<()> {
        let world = self.world;
        let running = self.subject.start(world).await?;
        for name in ["node-1", "node-2"] {
            world.cluster.register(name).await?;
            world.cluster.initialised(name, LONG).await?;
        }
        let made = self.services(5, 2).await?;
        self.measure(
            "node added, 5 Services of 2 ports",
            "with the next row 25 / 20 / 20, 2 s",
            async {
                world.cluster.register("node-3").await?;
                members(world, &made, "node-3", true).await
            },
        )
        .await?;
        self.measure("node removed, 5 Services of 2 ports", "2 s", async {
            world
                .cluster
                .nodes()
                .delete("node-3", &DeleteParams::default())
                .await?;
            members(world, &made, "node-3", false).await
        })
        .await?;
        all_gone(&made).await?;
        running.stop().await
    }

    async fn real_restart(&mut self) -> Result<()> {
        let running = self.with_nodes().await?;
        let made = self.services(10, 1).await?;
        running.stop().await?;
        let (mark, begun) = (self.world.api.mark(), wait::now());
        let running = self.subject.start(self.world).await?;
        // Nothing shows from outside that all is looked through: the last call does.
        let took = self.last_call(begun).await?;
        let cell = Cell {
            counts: self.world.api.since(mark),
            took,
        }
        .to_string();
        self.table.enter(
            "restart with 10 Services of 1 port",
            "15 / 0 / 0, 1 s",
            self.subject,
            cell,
        );
        all_gone(&made).await?;
        self.memory("memory after the restart", &running)?;
        running.stop().await
    }

    /// From the start of the processes to the last initialised node; the nodes are there before.
    async fn first_nodes(&mut self, names: &[impl AsRef<str>], row: &str, target: &str) -> Result<Running> {
        let world = self.world;
        for name in names {
            world.cluster.register(name.as_ref()).await?;
        }
        let (mark, begun) = (world.api.mark(), wait::now());
        let running = self.subject.start(world).await?;
        for name in names {
            world.cluster.initialised(name.as_ref(), LONG).await?;
        }
        let took = begun.elapsed();
        self.settled(Duration::from_secs(2)).await?;
        let cell = Cell {
            counts: world.api.since(mark),
            took,
        }
        .to_string();
        self.table.enter(row, target, self.subject, cell);
        Ok(running)
    }

    async fn with_nodes(&mut self) -> Result<Running> {
        let running = self.subject.start(self.world).await?;
        for name in MACHINES {
            self.world.cluster.register(name).await?;
        }
        for name in MACHINES {
            self.world.cluster.initialised(name, LONG).await?;
        }
        self.settled(Duration::from_secs(2)).await?;
        Ok(running)
    }

    /// A Service with some ports, measured until its status has the address.
    async fn service(&mut self, row: &str, target: &str, ports: u16) -> Result<Handle<'a>> {
        let world = self.world;
        let (mark, begun) = (world.api.mark(), wait::now());
        let service = world
            .service(Wanted::new(&format!("web-{ports}")).ports(8001, ports))
            .await?;
        service.address(LONG).await?;
        let took = begun.elapsed();
        self.settled(Duration::from_secs(3)).await?;
        let cell = Cell {
            counts: world.api.since(mark),
            took,
        }
        .to_string();
        self.table.enter(row, target, self.subject, cell);
        Ok(service)
    }

    async fn services(&mut self, n: usize, ports: u16) -> Result<Vec<Handle<'a>>> {
        let mut made = Vec::new();
        for number in 0..n {
            made.push(
                self.world
                    .service(Wanted::new(&format!("web-{number}")).ports(8001, ports))
                    .await?,
            );
        }
        for service in &made {
            service.address(LONG).await?;
        }
        self.settled(Duration::from_secs(3)).await?;
        Ok(made)
    }

    async fn measure(
        &mut self,
        row: &str,
        target: &str,
        work: impl Future<Output = Result<()>>,
    ) -> Result<()> {
        let (mark, begun) = (self.world.api.mark(), wait::now());
        work.await?;
        let took = begun.elapsed();
        self.settled(Duration::from_secs(3)).await?;
        let cell = Cell {
            counts: self.world.api.since(mark),
            took,
        }
        .to_string();
        self.table.enter(row, target, self.subject, cell);
        Ok(())
    }

    /// Waits until CloudStack was left alone for this long.
    async fn settled(&self, calm: Duration) -> Result<()> {
        let mut last = (self.world.api.mark(), wait::now());
        wait::until(LONG, "CloudStack is left alone", || {
            let mark = self.world.api.mark();
            if mark != last.0 {
                last = (mark, wait::now());
            }
            let settled = last.1.elapsed() >= calm;
            async move { Ok(settled.then_some(())) }
        })
        .await
    }

    /// When the last call came, before it was calm for three seconds.
    async fn last_call(&self, begun: std::time::Instant) -> Result<Duration> {
        let mut last = (self.world.api.mark(), begun.elapsed());
        wait::until(LONG, "CloudStack is left alone", || {
            let mark = self.world.api.mark();
            if mark != last.0 {
                last = (mark, begun.elapsed());
            }
            let settled = begun.elapsed().saturating_sub(last.1) >= Duration::from_secs(3);
            let when = last.1;
            async move { Ok(settled.then_some(when)) }
        })
        .await
    }

    fn memory(&mut self, row: &str, running: &Running) -> Result<()> {
        let [peak, own] = [running.peak_memory()?, running.own_memory()?].map(|bytes| bytes / 1_000_000);
        // Programs are mapped files: the kernel counts their pages, and drops them when it needs room.
        let cell = format!("{peak} MB, at the end {own} MB without mapped files");
        self.table.enter(row, "25 MB, both processes", self.subject, cell);
        Ok(())
    }
}

async fn all_gone(services: &[Handle<'_>]) -> Result<()> {
    for service in services {
        service.ask_delete().await?;
    }
    for service in services {
        service.gone(LONG).await?;
    }
    Ok(())
}

/// Waits until a machine is, or is no longer, a member of every rule of these Services, without asking through the proxy.
async fn members(world: &World, services: &[Handle<'_>], name: &str, wanted: bool) -> Result<()> {
    let addresses =
        futures::future::try_join_all(services.iter().map(|service| service.address(LONG))).await?;
    wait::until_holds(LONG, format!("membership of {name} is {wanted}"), || async {
        let found = world.cloud.inventory().await?;
        let missing = addresses.iter().filter(|ip| {
            let rules = found.rules_on(ip);
            rules.is_empty() || rules.values().any(|rule| rule.members.contains(name) != wanted)
        });
        let missing = missing.count();
        Ok((missing > 0).then(|| format!("not so on {missing} addresses")))
    })
    .await
}
