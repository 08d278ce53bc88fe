//! The events of a call on their way back: rewritten, errors mapped, and the one retry that a
//! changed header annotation earns (XMH-06).

use futures_util::StreamExt;
use futures_util::stream;
use vestibule_catalog::Freshness;
use vestibule_exchange::{Call, Event, Events, Final, Outbound, RpcError};

use crate::one::{definition, is_header_mismatch, params_of};
use crate::rewrite::Rewrite;
use crate::service::Router;

/// What is needed to send a call again with new headers.
pub(crate) struct Retry {
    pub(crate) router: Router,
    pub(crate) call: Call,
    pub(crate) outbound: Outbound,
}

impl Retry {
    /// Refreshes the tool's definition and calls again. The upstream refused the first request by
    /// its headers, so it has not run.
    async fn run(self) -> Events {
        let Retry {
            router,
            call,
            mut outbound,
        } = self;
        let tool = outbound.name.clone().unwrap_or_default();
        let annotated =
            definition(&router, &call, &outbound.upstream, &tool, Freshness::Anew).await;
        match params_of(&outbound.message, annotated.as_deref().unwrap_or_default()) {
            Ok(headers) => outbound.param_headers = headers,
            Err(error) => return Events::error(error),
        }
        router.connector.call(outbound).await
    }
}

struct Relay {
    rewrite: Rewrite,
    events: Events,
    retry: Option<Box<Retry>>,
    over: bool,
}

/// Passes events on; a call that has ended already stays one.
pub(crate) fn relay(rewrite: Rewrite, events: Events, retry: Option<Retry>) -> Events {
    let events = match events.into_ready() {
        Ok(end) if retry.is_some() && is_header_mismatch(&end) => Events::ready(end),
        Ok(end) => return Events::ready(rewrite.end(end)),
        Err(events) => events,
    };
    let relay = Relay {
        rewrite,
        events,
        retry: retry.map(Box::new),
        over: false,
    };
    // boxed, because it changes hands for every event
    Events::stream(stream::unfold(Box::new(relay), |mut relay| async move {
        let event = relay.next().await?;
        Some((event, relay))
    }))
}

impl Relay {
    async fn next(&mut self) -> Option<Event> {
        while !self.over {
            match self.events.next().await {
                Some(Event::Final(end)) => {
                    if is_header_mismatch(&end)
                        && let Some(retry) = self.retry.take()
                    {
                        self.events = Box::pin(retry.run()).await;
                        continue;
                    }
                    self.over = true;
                    return Some(Event::Final(self.rewrite.end(end)));
                }
                Some(event) => {
                    if let Some(event) = self.rewrite.event(event) {
                        return Some(event);
                    }
                }
                None => {
                    self.over = true;
                    let error = RpcError::outcome_unknown(self.rewrite.upstream());
                    return Some(Event::Final(Final::Error(error)));
                }
            }
        }
        None
    }
}
