//! Finding programs, and ending processes without losing connections.

use std::path::PathBuf;
use std::time::Duration;

use tokio::process::Child;

/// How long a process that was told to end may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Waits until a process that was told to end accepts no connection any more.
pub(super) async fn closed(child: &Child) {
    let Some(pid) = child.id() else { return };
    let waiting = async {
        while accepts(pid) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
        tracing::warn!(pid, "the old haproxy still accepts connections");
    }
}

/// Whether a process has a listening TCP socket.
fn accepts(pid: u32) -> bool {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let listening = |inode: &str| {
        table.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(3);
            fields.next() == Some("0A") && fields.nth(5) == Some(inode)
        })
    };
    let files = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    files
        .filter_map(|file| std::fs::read_link(file.path()).ok())
        .any(|link| {
            let name = link.to_string_lossy();
            name.strip_prefix("socket:[")
                .and_then(|rest| rest.strip_suffix(']'))
                .is_some_and(listening)
        })
}

/// Waits for a process that was told to end, so that it leaves no zombie; kills it when its last connections take too long.
pub(super) fn retire(mut child: Child) {
    let reaper = async move {
        if tokio::time::timeout(PATIENCE, child.wait()).await.is_err() {
            let _ = child.kill().await;
        }
    };
    reap(reaper);
}

#[expect(
    clippy::disallowed_methods,
    reason = "outlives the call that replaced the process and ends within seconds"
)]
fn reap(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

pub(super) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let standard = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(standard)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}
