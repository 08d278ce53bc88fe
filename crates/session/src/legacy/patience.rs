//! How long the store, or whoever it leads to, is waited for by what is worth waiting (EL-22): a
//! question whose upstream waits for its client anyway, a call between two rounds.

use std::time::Duration;

use tokio::time::sleep;

/// In attempts: half a minute.
const ATTEMPTS: u32 = 60;
/// The pause between two of them.
const PAUSE: Duration = Duration::from_millis(500);

/// Tries until something comes of it; nothing when half a minute was not enough.
pub(super) async fn patiently<T, F>(mut attempt: impl FnMut() -> F) -> Option<T>
where
    F: Future<Output = Option<T>>,
{
    for _ in 0..ATTEMPTS {
        if let Some(done) = attempt().await {
            return Some(done);
        }
        sleep(PAUSE).await;
    }
    None
}
