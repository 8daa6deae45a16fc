//! Programs as processes: started with their output captured, watched, stopped by their own id and never by name.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::{settings, wait};

/// What a process printed so far, on both streams.
#[derive(Debug)]
pub struct Log {
    /// The process's name in the reports.
    pub name: String,
    /// The file with the whole text.
    pub path: PathBuf,
    lines: Mutex<Vec<String>>,
}

impl Log {
    /// All lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }

    /// The first line that contains `text`.
    pub fn find(&self, text: &str) -> Option<String> {
        self.lines.lock().iter().find(|line| line.contains(text)).cloned()
    }

    /// How many lines contain `text`.
    pub fn count(&self, text: &str) -> usize {
        self.lines
            .lock()
            .iter()
            .filter(|line| line.contains(text))
            .count()
    }

    /// The last `n` lines, for a report.
    pub fn tail(&self, n: usize) -> String {
        let lines = self.lines.lock();
        let from = lines.len().saturating_sub(n);
        let tail: Vec<_> = lines
            .iter()
            .skip(from)
            .map(|line| format!("    {line:.400}"))
            .collect();
        tail.join(
            "
",
        ) + "
"
    }

    async fn follow(self: Arc<Self>, stream: impl AsyncRead + Unpin, mut file: tokio::fs::File) {
        let mut lines = BufReader::new(stream).split(b'\n');
        while let Ok(Some(line)) = lines.next_segment().await {
            let line = String::from_utf8_lossy(&line).into_owned();
            // A full disk shows in the test that reads the file, not here.
            let _ = file.write_all(format!("{line}\n").as_bytes()).await;
            let _ = file.flush().await;
            self.lines.lock().push(line);
        }
    }
}

/// What to start.
#[derive(Debug, Clone)]
pub struct Program {
    name: String,
    path: PathBuf,
    args: Vec<OsString>,
    env: Vec<(String, String)>,
    keep_stdin: bool,
    last_signal: &'static str,
}

impl Program {
    /// `path`, called `name` in reports and log files.
    pub fn new(name: impl Into<String>, path: impl AsRef<Path>) -> Self {
        Self {
            name: name.into(),
            path: path.as_ref().to_path_buf(),
            args: Vec::new(),
            env: Vec::new(),
            keep_stdin: false,
            last_signal: "KILL",
        }
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// One more environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Its standard input stays open until the [`Process`] goes: for programs that end at its end.
    #[must_use]
    pub fn holding_stdin(mut self) -> Self {
        self.keep_stdin = true;
        self
    }

    /// When this program dies it is told to end and not killed: for programs with processes of their own.
    #[must_use]
    pub fn with_children(mut self) -> Self {
        self.last_signal = "TERM";
        self
    }

    /// Starts it; its output goes to `DIR/NAME.log`.
    pub async fn start(self, dir: &Path) -> Result<Process> {
        tokio::fs::create_dir_all(dir)
            .await
            .with_context(|| format!("creating {}", dir.display()))?;
        let path = dir.join(format!("{}.log", self.name));
        let mut options = tokio::fs::OpenOptions::new();
        let file = options
            .create(true)
            .append(true)
            .open(&path)
            .await
            .with_context(|| format!("opening {}", path.display()))?;
        let mut command = self.command();
        let mut child = command
            .spawn()
            .with_context(|| format!("starting {}", self.path.display()))?;
        let log = Arc::new(Log {
            name: self.name.clone(),
            path,
            lines: Mutex::new(Vec::new()),
        });
        let mut readers = Vec::new();
        if let Some(stream) = child.stdout.take() {
            readers.push(wait::spawn(
                Arc::clone(&log).follow(stream, file.try_clone().await?),
            ));
        }
        if let Some(stream) = child.stderr.take() {
            readers.push(wait::spawn(Arc::clone(&log).follow(stream, file)));
        }
        let pid = child
            .id()
            .with_context(|| format!("{} ended at once", self.name))?;
        let stdin = child.stdin.take();
        Ok(Process {
            name: self.name,
            pid,
            child,
            log,
            readers,
            _stdin: stdin,
        })
    }

    /// The command to spawn, with its streams.
    fn command(&self) -> Command {
        // A harness that is killed can't tidy up: the kernel does it where it can.
        let mut command = match settings::on_path("setpriv") {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command
                    .args(["--pdeathsig", self.last_signal, "--"])
                    .arg(&self.path);
                command
            }
            None => Command::new(&self.path),
        };
        command
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(if self.keep_stdin {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs it to its end and gives what it printed on standard output; a failure says what it printed at all.
    pub async fn output(self) -> Result<String> {
        let mut command = Command::new(&self.path);
        command
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        let out = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
        let out = out.with_context(|| format!("running {}", self.path.display()))?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        if !out.status.success() {
            bail!(
                "{}: {}\n{text}{}",
                self.name,
                out.status,
                String::from_utf8_lossy(&out.stderr)
            );
        }
        Ok(text)
    }
}

/// A process that was started here. It is killed when this value goes.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: u32,
    child: Child,
    log: Arc<Log>,
    readers: Vec<tokio::task::JoinHandle<()>>,
    _stdin: Option<ChildStdin>,
}

impl Process {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What it printed.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Whether it runs, else how it ended.
    pub fn ended(&mut self) -> Result<Option<std::process::ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for a line that contains `text`; fails early when the process ends without it.
    pub async fn says(&mut self, text: &str, within: Duration) -> Result<String> {
        let end = wait::now() + within;
        loop {
            let ended = self.child.try_wait()?;
            if let Some(line) = self.log.find(text) {
                return Ok(line);
            }
            if let Some(status) = ended {
                // The reader may be a moment behind the end of the process.
                tokio::time::sleep(Duration::from_millis(50)).await;
                return self.log.find(text).with_context(|| {
                    format!(
                        "{} ended ({status}) and never said '{text}':\n{}",
                        self.name,
                        self.log.tail(20)
                    )
                });
            }
            if wait::now() > end {
                bail!(
                    "{} did not say '{text}' within {within:?}:\n{}",
                    self.name,
                    self.log.tail(20)
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits for its end, and until all it printed is in the log.
    pub async fn ends(&mut self, within: Duration) -> Result<std::process::ExitStatus> {
        let waited = tokio::time::timeout(within, self.child.wait()).await;
        let status = waited.map_err(|_| anyhow!("{} still runs after {within:?}", self.name))??;
        for reader in self.readers.drain(..) {
            // A child of its own may hold the other end: then its last words are late, and not waited for.
            let _ = tokio::time::timeout(Duration::from_secs(2), reader).await;
        }
        Ok(status)
    }

    /// SIGKILL: no chance to tidy up.
    pub async fn kill(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            self.child.start_kill()?;
        }
        self.child.wait().await?;
        Ok(())
    }

    /// SIGTERM, and its exit status; SIGKILL and an error when it does not end in time.
    pub async fn stop(&mut self, within: Duration) -> Result<std::process::ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        let pid = self.pid;
        Program::new("kill", "/bin/sh")
            .args(["-c", &format!("kill -TERM {pid}")])
            .output()
            .await?;
        if let Ok(status) = self.ends(within).await {
            return Ok(status);
        }
        self.kill().await?;
        bail!(
            "{} did not end within {within:?} of SIGTERM:\n{}",
            self.name,
            self.log.tail(20)
        )
    }

    /// The most memory it ever had resident, in bytes (Linux).
    pub fn peak_memory(&self) -> Result<u64> {
        self.memory("VmHWM:")
    }

    /// What of its memory is its own and not mapped from a file, such as the program itself, in bytes (Linux).
    pub fn own_memory(&self) -> Result<u64> {
        self.memory("RssAnon:")
    }

    fn memory(&self, field: &str) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let line = line.with_context(|| format!("no {field} of {}", self.name))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib * 1024)
    }
}

/// Every place in `logs` where one of `secrets` stands, as `LOG:LINE: NAME` (the text itself is not repeated).
pub fn leaks(logs: &[Arc<Log>], secrets: &[(String, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for log in logs {
        for (number, line) in log.lines.lock().iter().enumerate() {
            for (what, secret) in secrets.iter().filter(|(_, secret)| secret.len() > 7) {
                if line.contains(secret.as_str()) {
                    found.push(format!("{}:{}: {what}", log.name, number + 1));
                }
            }
        }
    }
    found
}

/// A TCP port that was free a moment ago.
pub fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
