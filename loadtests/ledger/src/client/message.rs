//! What a message on the stream of a call is: the call's own, or foreign.

use serde_json::Value;

use super::world::Tenant;
use crate::history::{End, What};

/// What a message on the stream of a call is.
pub(super) fn understand(text: &str, tenant: &Tenant, key: &str, request: u64) -> What {
    let foreign = || {
        let shown: String = text.chars().take(200).collect();
        What::Foreign(shown)
    };
    let Ok(message) = serde_json::from_str::<Value>(text) else {
        return foreign();
    };
    let ours = |text: &Value| -> Option<String> {
        // the gateway may put its upstream's name before it
        let text = text.as_str()?;
        let (_, rest) = text.split_once(&format!("{} {key} ", tenant.canary))?;
        Some(rest.to_owned())
    };
    let params = &message["params"];
    let what = match message["method"].as_str() {
        Some("notifications/progress") if params["progressToken"] == request => {
            ours(&params["message"]).and_then(|rest| rest.parse().ok().map(What::Event))
        }
        Some("elicitation/create") => ours(&params["message"]).map(What::Question),
        None if message["id"] == request => match message.get("error") {
            Some(error) => Some(What::End(End::Error {
                code: error["code"].as_i64().unwrap_or_default(),
                reason: error["data"]["reason"].as_str().unwrap_or("").to_owned(),
            })),
            None => ours(&message["result"]["content"][0]["text"])
                .filter(|rest| rest == "end")
                .map(|_| What::End(End::Result)),
        },
        Some("notifications/cancelled") => params["requestId"].as_u64().map(What::Withdrawn),
        _ => None,
    };
    what.unwrap_or_else(foreign)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(message: &Value) -> What {
        let tenant = Tenant {
            name: "red",
            key: String::new(),
            canary: "rose".to_owned(),
        };
        understand(&message.to_string(), &tenant, "c7", 7)
    }

    fn progress(token: u64, text: &str) -> Value {
        let params = json!({ "progressToken": token, "progress": 1, "message": text });
        json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
    }

    #[test]
    fn a_message_is_the_calls_own_or_foreign() {
        assert_eq!(read(&progress(7, "rose c7 3")), What::Event(3));
        for (token, text) in [
            (8, "rose c7 3"),
            (7, "rose c8 3"),
            (7, "iris c7 3"),
            (7, "rose c7 x"),
        ] {
            assert!(
                matches!(read(&progress(token, text)), What::Foreign(_)),
                "{text}"
            );
        }
        let content = json!([{ "type": "text", "text": "rose c7 end" }]);
        let result = json!({ "jsonrpc": "2.0", "id": 7, "result": { "content": content } });
        assert_eq!(read(&result), What::End(End::Result));
        let error =
            json!({ "code": -31004, "message": "x", "data": { "reason": "outcome_unknown" } });
        let error = json!({ "jsonrpc": "2.0", "id": 7, "error": error });
        let end = End::Error {
            code: -31004,
            reason: "outcome_unknown".to_owned(),
        };
        assert_eq!(read(&error), What::End(end));
        let asked = json!({ "jsonrpc": "2.0", "id": 1, "method": "elicitation/create",
            "params": { "message": "[asking] rose c7 q-c7" } });
        assert_eq!(read(&asked), What::Question("q-c7".to_owned()));
    }
}
