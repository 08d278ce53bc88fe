use std::time::Duration;

use proptest::prelude::{ProptestConfig, Strategy, prop_assert, prop_assert_eq, proptest};
use vestibule_terms::SessionId;
use vestibule_terms::clock::ManualClock;

use super::*;
use crate::suite;

fn make(lifetimes: Lifetimes, clock: Arc<dyn Clock>) -> Arc<dyn Sessions> {
    Arc::new(MemorySessions::new(lifetimes, clock))
}

suite::tests!(make);

/// One step of a random history: what, which of three principals, which of twelve sessions.
fn steps() -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
    proptest::collection::vec((0..8_u8, 0..3_u8, 0..12_u8), 1..120)
}

async fn history(steps: Vec<(u8, u8, u8)>) -> Result<(), proptest::test_runner::TestCaseError> {
    let caps = Caps {
        per_principal: 3,
        per_tenant: 6,
    };
    let lifetimes = Lifetimes {
        idle: Duration::from_secs(60),
        age: Some(Duration::from_secs(1000)),
    };
    let sessions = MemorySessions::new(lifetimes, Arc::new(ManualClock::at(1)));
    let tenant = suite::tenant("acme");
    let (mut created, mut ended) = (0, 0);
    for (what, principal, session) in steps {
        let id = SessionId::new(&format!("{principal}-{session}"));
        let key = SessionKey::new(&tenant, &principal.to_string(), &id);
        match what {
            0..=2 => {
                if let Ok(done) = sessions.create(key, suite::opening(), caps).await {
                    created += 1;
                    ended += done.evicted.len();
                    prop_assert!(done.evicted.iter().all(|e| e.session.streams_open == 0));
                }
            }
            3 => drop(sessions.stream_opened(&key).await),
            4 => sessions.stream_closed(&key),
            5 => drop(sessions.touch(&key).await),
            6 => ended += usize::from(sessions.end(&key).await.unwrap().is_some()),
            _ => {
                tokio::time::advance(Duration::from_secs(u64::from(session) * 7)).await;
                ended += sessions.sweep().await.unwrap().len();
            }
        }
        let live = sessions.count(&tenant, None).await.unwrap();
        prop_assert_eq!(
            created - ended,
            live,
            "every session ends once and is handed out once"
        );
        prop_assert!(live <= caps.per_tenant);
        if let Some(table) = sessions.0.tenants.get(&tenant) {
            table.check_invariants();
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn case_65_no_table_outlives_its_session(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(history(steps))?;
    }
}

/// Case 63: clients that never say goodbye leave nothing behind, and each of their sessions is
/// handed out once, so that what it held elsewhere can be closed.
#[tokio::test(start_paused = true)]
async fn case_63_abandoned_sessions_are_bounded_and_all_handed_out() {
    let sessions = MemorySessions::new(Lifetimes::default(), Arc::new(ManualClock::at(1)));
    let tenant = suite::tenant("acme");
    let mut handed_out = 0;
    for number in 0..20_000 {
        let id = SessionId::new(&number.to_string());
        let key = SessionKey::new(&tenant, "alice", &id);
        let created = sessions
            .create(key, suite::opening(), Caps::default())
            .await
            .unwrap();
        handed_out += created.evicted.len();
    }
    assert_eq!(sessions.count(&tenant, None).await.unwrap(), 256);
    tokio::time::advance(Duration::from_secs(24 * 60 * 60)).await;
    handed_out += sessions.sweep().await.unwrap().len();
    assert_eq!(handed_out, 20_000);
    assert!(sessions.0.tenants.is_empty());
}
