//! One recorded scenario: sends its lines in order and compares.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use cloudstack_simulator::{Handle, Hold, KeyPair, Keys, Options, Seed, Simulator};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::compare::{Ids, elements, masked};
use super::router;
use crate::client::{Answer, Manner, request};

/// A recorded line.
#[derive(Debug, Clone, Deserialize)]
struct Line {
    step: u32,
    #[serde(rename = "as")]
    caller: String,
    command: Option<String>,
    params: Map<String, Value>,
    status: u16,
    content_type: Option<String>,
    x_description: Option<String>,
    body: Value,
    captures: BTreeMap<String, String>,
    poll: Option<String>,
    #[serde(default)]
    parallel: Option<u32>,
    #[serde(default)]
    job_ms: Option<f64>,
    #[serde(default)]
    router: Vec<Value>,
    #[serde(default)]
    ms: f64,
    method: Option<String>,
    auth: Option<String>,
    format: Option<String>,
    path: Option<String>,
    extra: Option<String>,
}

/// What came out: for each compared line, its step and the differences.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) steps: Vec<(u32, Vec<String>)>,
    /// Jobs whose commands to routers were compared: step, and what differs.
    pub(crate) routers: Vec<(u32, Option<String>)>,
}

impl Outcome {
    /// A scenario that did not come to its end.
    pub(crate) fn hung() -> Self {
        Self {
            steps: vec![(0, vec!["the scenario did not end".into()])],
            routers: Vec::new(),
        }
    }
}

/// Steps of `throttling` before which the recording waited for the window to end.
const AFTER_WINDOW: &[u32] = &[21, 26, 35, 36];

/// The real server's waits are cut to this part.
const PACE: f64 = 0.01;

struct Player {
    simulator: Handle,
    ids: Ids,
    values: HashMap<String, String>,
    ordered: bool,
    throttled: bool,
    outcome: Outcome,
}

/// Jobs that stand still: before their work, before the router.
pub(crate) fn holds(start: &[&str], router: &[&str]) -> Vec<Hold> {
    start
        .iter()
        .map(|name| Hold::at_start(name))
        .chain(router.iter().map(|name| Hold::at_router(name)))
        .collect()
}

/// Plays a scenario against a simulator of its own.
pub(crate) async fn play(name: &str, file: &Path, holds: Vec<Hold>) -> Outcome {
    let seed_text = std::fs::read_to_string(file.with_file_name("seed.json")).unwrap();
    let seed = Seed::parse(&seed_text).unwrap();
    let keys = Keys::generate(&seed);
    let options = Options {
        window_scale: 100.0,
        router_log: true,
        lock_scale: 0.02,
        ..Options::default()
    };
    let values: HashMap<String, String> = seed.ids.clone().into_iter().collect();
    let seed_ids: Map<String, Value> = seed
        .ids
        .iter()
        .map(|(name, id)| (name.clone(), id.clone().into()))
        .collect();
    let simulator = Simulator::start(seed, keys, options).await.unwrap();
    simulator.hold_jobs(&holds);
    for (setting, value) in settings(name) {
        simulator.set(setting, value);
    }
    let mut player = Player {
        simulator,
        ids: Ids::of_seed(&seed_ids),
        values,
        ordered: name == "paging",
        throttled: name == "throttling",
        outcome: Outcome::default(),
    };
    let text = std::fs::read_to_string(file).unwrap();
    let lines: Vec<Line> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let group = line.parallel.map_or(1, |number| {
            lines
                .iter()
                .skip(at)
                .take_while(|line| line.parallel == Some(number))
                .count()
        });
        if group == 1 || line.poll.is_some() {
            player.one(line).await;
            at += 1;
        } else {
            player
                .together(lines.get(at..at + group).unwrap_or_default())
                .await;
            at += group;
        }
    }
    player.simulator.stop().await;
    player.outcome
}

/// Settings that differ from the seed's.
fn settings(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "enforce-post" | "small-pages" => &[
            ("enforce.post.requests.and.timestamps", "true"),
            ("default.page.size", "4"),
        ],
        "throttling" => &[
            ("api.throttling.enabled", "true"),
            ("api.throttling.interval", "5"),
            ("api.throttling.max", "6"),
        ],
        _ => &[],
    }
}

/// A request ready to go.
struct Ready {
    keys: KeyPair,
    pairs: Vec<(String, String)>,
}

impl Player {
    /// Fills in the values of a line. The error names what is not known.
    fn ready(&self, line: &Line) -> Result<Ready, String> {
        let mut pairs = Vec::new();
        for (name, value) in &line.params {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            pairs.push((name.clone(), self.filled(&text)?));
        }
        if line.command.as_deref() == Some("configureSimulator") {
            for (_, value) in pairs.iter_mut().filter(|(name, _)| name == "value") {
                if let Some(millis) = value
                    .strip_prefix("wait:")
                    .and_then(|millis| millis.parse::<f64>().ok())
                {
                    *value = format!("wait:{:.0}", millis * PACE);
                }
            }
        }
        if let Some(command) = &line.command {
            pairs.push(("command".into(), self.filled(command)?));
        }
        match line.format.as_deref() {
            None => pairs.push(("response".into(), "json".into())),
            Some("") => {}
            Some(format) => pairs.push(("response".into(), format.into())),
        }
        let caller = if line.caller == "project" {
            "user"
        } else {
            &line.caller
        };
        Ok(Ready {
            keys: self.simulator.keys(caller).unwrap().clone(),
            pairs,
        })
    }

    fn filled(&self, text: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (name, tail) = after.split_once('}').unwrap_or((after, ""));
            out.push_str(before);
            out.push_str(
                self.values
                    .get(name)
                    .ok_or_else(|| format!("needs {name}, which is not known"))?,
            );
            rest = tail;
        }
        Ok(out + rest)
    }

    async fn send(&self, line: &Line, ready: &Ready) -> Result<Answer, String> {
        let manner = Manner {
            auth: line.auth.as_deref().unwrap_or("v1"),
            method: line.method.as_deref().unwrap_or("GET"),
            path: line.path.as_deref().unwrap_or("/client/api"),
            extra: line.extra.as_deref().unwrap_or(""),
        };
        let mut answer = pin!(request(
            self.simulator.address(),
            &ready.keys,
            ready.pairs.clone(),
            &manner
        ));
        // A call that waits for the lock of a job that stands still would wait for ever.
        if let Ok(answer) = timeout(Duration::from_secs(1), answer.as_mut()).await {
            return answer;
        }
        self.simulator.release_jobs().await;
        answer.await
    }

    /// One line by itself.
    async fn one(&mut self, line: &Line) {
        if self.throttled && AFTER_WINDOW.contains(&line.step) {
            self.simulator.end_throttle_windows();
        }
        let ready = match self.ready(line) {
            Ok(ready) => ready,
            Err(missing) => return self.note(line, vec![missing]),
        };
        let is_read = line
            .command
            .as_ref()
            .is_some_and(|command| command.starts_with("list") || command.starts_with("query"));
        loop {
            let idle = self.simulator.dump().pending_jobs == 0;
            let answer = match self.send(line, &ready).await {
                Ok(answer) => answer,
                Err(error) => return self.note(line, vec![error]),
            };
            let pending = answer.inner()["jobstatus"] == 0;
            if line.poll.as_deref() == Some("final") && pending {
                self.simulator.release_jobs().await;
                continue;
            }
            if line.poll.as_deref() == Some("pending") {
                return;
            }
            let mut ids = self.ids.clone();
            let differences = differences(line, &answer, &mut ids, self.ordered);
            // The recording paused here and there until a job ended.
            if is_read && !differences.is_empty() && !idle {
                self.simulator.release_jobs().await;
                continue;
            }
            self.ids = ids;
            self.capture(line, &answer);
            if line.poll.as_deref() == Some("final") {
                self.compare_router(line, &ready);
            }
            return self.note(line, differences);
        }
    }

    /// What the job sent to routers.
    fn compare_router(&mut self, line: &Line, ready: &Ready) {
        let job = ready
            .pairs
            .iter()
            .find(|pair| pair.0 == "jobid")
            .map(|pair| pair.1.clone())
            .unwrap_or_default();
        let sent = self
            .simulator
            .router_log()
            .into_iter()
            .filter(|sent| sent.job.to_string() == job);
        let ours: Vec<Value> = sent.map(|sent| sent.command).collect();
        self.outcome
            .routers
            .push((line.step, router::differences(&line.router, &ours)));
    }

    fn note(&mut self, line: &Line, differences: Vec<String>) {
        if line.poll.as_deref() != Some("pending") {
            self.outcome.steps.push((line.step, differences));
        }
    }

    /// Takes values from the same places as in the recording.
    fn capture(&mut self, line: &Line, answer: &Answer) {
        let ours = answer.json().unwrap_or_default();
        for (name, recorded) in &line.captures {
            let by_place = place(&line.body, recorded)
                .and_then(|steps| dig(&ours, &steps))
                .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            if let Some(value) = self.ids.ours(recorded).cloned().or(by_place) {
                self.ids.same(recorded, &value);
                self.values.insert(name.clone(), value);
            }
        }
    }

    /// Lines that were sent at the same time. Who wins is not determined, so the one that won in the recording goes first; each is on its way before the next.
    async fn together(&mut self, lines: &[Line]) {
        if self.throttled && lines.iter().any(|line| AFTER_WINDOW.contains(&line.step)) {
            self.simulator.end_throttle_windows();
        }
        let mut order: Vec<&Line> = lines.iter().filter(|line| line.poll.is_none()).collect();
        let final_of = |step: u32| {
            lines
                .iter()
                .find(|line| line.step == step && line.poll.as_deref() == Some("final"))
        };
        order.sort_by_key(|line| {
            let last = final_of(line.step);
            let failed = last.is_some_and(|last| job_code(&last.body) != 0);
            let millis = line.ms + last.and_then(|last| last.job_ms).unwrap_or(0.0);
            (line.status != 200, failed, (millis * 1000.0).round().to_bits())
        });
        let mut sent = Vec::new();
        for line in order {
            let before = self.simulator.calls().total();
            let ready = self.ready(line);
            let manner = (line.auth.clone(), line.method.clone());
            let address = self.simulator.address();
            let task = tokio::spawn(async move {
                let ready = ready?;
                let manner = Manner {
                    auth: manner.0.as_deref().unwrap_or("v1"),
                    method: manner.1.as_deref().unwrap_or("GET"),
                    ..Manner::default()
                };
                request(address, &ready.keys, ready.pairs, &manner).await
            });
            while self.simulator.calls().total() == before && !task.is_finished() {
                tokio::task::yield_now().await;
            }
            sent.push((line, task));
        }
        for (line, task) in sent {
            match task.await.unwrap() {
                Ok(answer) => {
                    let differences = differences(line, &answer, &mut self.ids, self.ordered);
                    self.capture(line, &answer);
                    self.note(line, differences);
                }
                Err(error) => self.note(line, vec![error]),
            }
        }
        for line in lines.iter().filter(|line| line.poll.is_some()) {
            self.one(line).await;
        }
    }
}

fn job_code(body: &Value) -> u64 {
    body.as_object()
        .and_then(|fields| fields.values().next())
        .and_then(|inner| inner["jobresultcode"].as_u64())
        .unwrap_or(0)
}

fn differences(line: &Line, answer: &Answer, ids: &mut Ids, ordered: bool) -> Vec<String> {
    let mut out = Vec::new();
    if line.status != answer.status {
        out.push(format!("status {} became {}", line.status, answer.status));
    }
    let kind = |text: &Option<String>| text.as_ref().map(|text| text.to_lowercase());
    if kind(&line.content_type) != kind(&answer.content_type) {
        out.push(format!(
            "content type {:?} became {:?}",
            line.content_type, answer.content_type
        ));
    }
    match (&line.x_description, &answer.description) {
        (Some(recorded), Some(ours)) if masked(recorded) == masked(ours) => {}
        (None, None) => {}
        (recorded, ours) => out.push(format!("X-Description {recorded:?} became {ours:?}")),
    }
    match (&line.body, answer.json()) {
        (Value::String(text), _) if text.starts_with("<?xml") => {
            if elements(text) != elements(&answer.text) {
                out.push(format!(
                    "XML {:?} became {:?}",
                    elements(text),
                    elements(&answer.text)
                ));
            }
        }
        (Value::String(text), None) => {
            if text.trim().is_empty() != answer.text.trim().is_empty() {
                out.push(format!("body {text:?} became {:?}", answer.text));
            }
        }
        (recorded, Some(ours)) => out.extend(ids.compare(recorded, &ours, ordered)),
        (Value::Null, None) if answer.text.is_empty() => {}
        (_, None) => out.push(format!("no JSON: {:?}", answer.text)),
    }
    out
}

/// Where a value stands in a body.
fn place(body: &Value, wanted: &str) -> Option<Vec<String>> {
    match body {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let mut steps = place(value, wanted)?;
            steps.insert(0, name.clone());
            Some(steps)
        }),
        Value::Array(entries) => entries.iter().enumerate().find_map(|(at, value)| {
            let mut steps = place(value, wanted)?;
            steps.insert(0, at.to_string());
            Some(steps)
        }),
        Value::String(text) => (text == wanted).then(Vec::new),
        Value::Number(number) => (number.to_string() == wanted).then(Vec::new),
        Value::Null | Value::Bool(_) => None,
    }
}

fn dig<'a>(body: &'a Value, steps: &[String]) -> Option<&'a Value> {
    steps.iter().try_fold(body, |value, step| match value {
        Value::Object(fields) => fields.get(step),
        Value::Array(entries) => entries.get(step.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}
