use tokio_util::sync::CancellationToken;

use super::*;
use crate::cloudstack::ApiKeys;

fn account() -> Arc<Account> {
    runtime::host::install_tls_provider();
    let environment = Environment {
        tasks: TaskTracker::new(),
        shutdown: CancellationToken::new(),
        metrics: CloudStackMetrics::default(),
    };
    Account::new("main", &settings("A"), environment).unwrap()
}

fn settings(key: &str) -> Settings {
    let keys = ApiKeys {
        api_key: key.into(),
        secret_key: "S".into(),
    };
    Settings::new("http://127.0.0.1:1/client/api".parse().unwrap(), keys)
}

#[tokio::test]
async fn only_another_users_keys_are_other_keys() {
    let account = account();
    let first = account.rekeyed();
    let other_secret = Settings {
        keys: ApiKeys {
            secret_key: "T".into(),
            ..settings("A").keys
        },
        ..settings("A")
    };
    assert!(!account.replace(&settings("A")).unwrap());
    assert!(!account.replace(&other_secret).unwrap());
    assert!(!first.is_cancelled());
    assert!(account.replace(&settings("B")).unwrap());
    assert!(first.is_cancelled() && !account.rekeyed().is_cancelled());
}
