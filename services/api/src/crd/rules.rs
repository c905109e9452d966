//! Rules across fields, in the language of the API server (CEL), with the words that files are refused with.
//!
//! The API server bounds what all rules of a definition may cost, reckoned with the longest lists and texts that the
//! schema allows. So whatever a rule touches has a bound, and rules stand as deep as they can.

use serde_json::{Value as Json, json};

use crate::{
    format::Format,
    rules::texts::{
        ACM_OR_SECRET, AUTHORIZATION_IS_TRUE, BBR_FOR_SEVERAL, JWT_OR_KEYS, LIMIT_HAS_A_NUMBER, LIMIT_HAS_ONE_KEY,
        LRU_ONLY_LLM_D, MODEL_NAME_UNIQUE, NEEDS_AUTH, TOKENS_RESTRICTED, WEIGHTS_OR_CONFIG_MAP,
    },
    schema::Shape,
};

/// One rule.
struct Rule {
    /// Where it stands: `self` is the value there.
    at: &'static str,
    holds: &'static str,
    says: Says,
    /// The field below that an operator would mend.
    field: Option<&'static str>,
}

/// What an operator is told.
enum Says {
    Text(&'static str),
    /// CEL that makes the text, with numbers of the object in it.
    Made(&'static str),
}

/// Rules of limits, which stand in two places, and of flow control likewise.
macro_rules! in_both_places {
    ($($inner:literal, $holds:literal, $says:expr, $field:expr;)*) => {
        [$(
            Rule { at: concat!("spec", $inner), holds: $holds, says: $says, field: $field },
            Rule { at: concat!("spec.schedulers[]", $inner), holds: $holds, says: $says, field: $field },
        )*]
    };
}

const LIMITS: [Rule; 6] = in_both_places! {
    ".limits[]", "has(self.requestsPerMinute) || has(self.tokensPerMinute) || has(self.inputTokensPerMinute) || \
                  has(self.outputTokensPerMinute) || has(self.concurrentRequests)", Says::Text(LIMIT_HAS_A_NUMBER), None;
    ".limits[].key", "[has(self.header), has(self.claim), has(self.authorization)].exists_one(there, there)",
                     Says::Text(LIMIT_HAS_ONE_KEY), None;
    ".limits[].key.authorization", "self", Says::Text(AUTHORIZATION_IS_TRUE), None;
};

const RULES: [Rule; 16] = [
    Rule {
        at: "spec",
        holds: "self.bbr.enabled || self.schedulers.size() <= 1",
        says: Says::Text(BBR_FOR_SEVERAL),
        field: Some(".bbr.enabled"),
    },
    Rule {
        at: "spec.schedulers",
        holds: "self.all(a, self.exists_one(b, b.modelName == a.modelName))",
        says: Says::Text(MODEL_NAME_UNIQUE),
        field: None,
    },
    Rule {
        at: "spec",
        holds: "has(self.auth) || !has(self.flowControl) || !has(self.flowControl.bandClaim)",
        says: Says::Text(NEEDS_AUTH),
        field: Some(".flowControl.bandClaim"),
    },
    Rule {
        at: "spec",
        holds: "has(self.auth) || !self.schedulers.exists(s, has(s.flowControl) && has(s.flowControl.bandClaim))",
        says: Says::Text(NEEDS_AUTH),
        field: None,
    },
    Rule {
        at: "spec",
        holds: "has(self.auth) || !has(self.limits) || !self.limits.exists(l, has(l.key.claim))",
        says: Says::Text(NEEDS_AUTH),
        field: None,
    },
    Rule {
        at: "spec",
        holds: "has(self.auth) || \
                !self.schedulers.exists(s, has(s.limits) && s.limits.exists(l, has(l.key.claim)))",
        says: Says::Text(NEEDS_AUTH),
        field: None,
    },
    Rule {
        at: "spec",
        holds: "self.?flowControl.?bands.?standard.?maxSaturation.orValue(0.9) <= \
                self.?flowControl.?bands.?critical.?maxSaturation.orValue(1.0)",
        says: Says::Text(
            "maxSaturation of standard must not be more than that of critical: the lower band would be \
                          served while the higher one waits",
        ),
        field: None,
    },
    Rule {
        at: "spec",
        holds: "self.?flowControl.?bands.?sheddable.?maxSaturation.orValue(0.8) <= \
                self.?flowControl.?bands.?standard.?maxSaturation.orValue(0.9)",
        says: Says::Text(
            "maxSaturation of sheddable must not be more than that of standard: the lower band would be \
                          served while the higher one waits",
        ),
        field: None,
    },
    Rule {
        at: "spec",
        holds: "self.schedulers.all(s, !has(s.flowControl) || \
                s.?flowControl.?bands.?standard.?maxSaturation.orValue(\
                self.?flowControl.?bands.?standard.?maxSaturation.orValue(0.9)) <= \
                s.?flowControl.?bands.?critical.?maxSaturation.orValue(\
                self.?flowControl.?bands.?critical.?maxSaturation.orValue(1.0)))",
        says: Says::Text(
            "maxSaturation of standard must not be more than that of critical in any scheduler: the lower \
                          band would be served while the higher one waits",
        ),
        field: None,
    },
    Rule {
        at: "spec",
        holds: "self.schedulers.all(s, !has(s.flowControl) || \
                s.?flowControl.?bands.?sheddable.?maxSaturation.orValue(\
                self.?flowControl.?bands.?sheddable.?maxSaturation.orValue(0.8)) <= \
                s.?flowControl.?bands.?standard.?maxSaturation.orValue(\
                self.?flowControl.?bands.?standard.?maxSaturation.orValue(0.9)))",
        says: Says::Text(
            "maxSaturation of sheddable must not be more than that of standard in any scheduler: the lower \
                          band would be served while the higher one waits",
        ),
        field: None,
    },
    Rule {
        at: "spec.schedulers[]",
        holds: "!(has(self.weights) && has(self.configMapRef))",
        says: Says::Text(WEIGHTS_OR_CONFIG_MAP),
        field: Some(".configMapRef"),
    },
    Rule {
        at: "spec.schedulers[]",
        holds: "!has(self.weights) || !has(self.weights.lru) || !has(self.scheduler) || self.scheduler == 'llm-d'",
        says: Says::Text(LRU_ONLY_LLM_D),
        field: Some(".weights.lru"),
    },
    Rule {
        at: "spec.schedulers[].modelSelector.matchExpressions[]",
        holds: "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
        says: Says::Made(
            "'operator ' + self.operator + (self.operator in ['In', 'NotIn'] ? ' needs `values`' : ' takes no `values`')",
        ),
        field: None,
    },
    Rule {
        at: "spec.tls",
        holds: "!has(self.secretRef) || !has(self.acmArn) || self.acmArn == ''",
        says: Says::Text(ACM_OR_SECRET),
        field: Some(".secretRef"),
    },
    Rule { at: "spec.auth", holds: "has(self.jwt) || has(self.apiKeys)", says: Says::Text(JWT_OR_KEYS), field: None },
    Rule {
        at: "spec.auth.jwt.provider",
        holds: "(has(self.audiences) && self.audiences.size() > 0) || \
                (has(self.requiredClaims) && self.requiredClaims.size() > 0)",
        says: Says::Text(TOKENS_RESTRICTED),
        field: None,
    },
];

/// Apart, since its words hold what the object says. Both fields are there: they have defaults.
const SIGNALS: Rule = Rule {
    at: "spec.signals",
    holds: "duration(self.staleAfter) > duration(self.scrapeInterval)",
    says: Says::Made(
        "'staleAfter (' + self.staleAfter + ') must be longer than scrapeInterval (' + self.scrapeInterval + \
         '): else no reading ever counts'",
    ),
    field: None,
};

/// The rules at this path for a value of this shape.
pub(super) fn at(path: &str, shape: &Shape) -> Vec<Json> {
    let written = RULES.iter().chain(&LIMITS).chain([&SIGNALS]).filter(|rule| rule.at == path).map(written);
    written.chain(bounds(shape)).collect()
}

fn written(rule: &Rule) -> Json {
    let mut json = json!({"rule": rule.holds});
    match rule.says {
        Says::Text(text) => json["message"] = text.into(),
        Says::Made(expression) => json["messageExpression"] = expression.into(),
    }
    if let Some(field) = rule.field {
        json["fieldPath"] = field.into();
    }
    json
}

/// What a pattern has no words for: bounds of durations, and paths that climb.
fn bounds(shape: &Shape) -> Vec<Json> {
    let Shape::Text { format, at_least, at_most, .. } = shape else { return Vec::new() };
    let bound = |sign: &str, word: &str, bound: &Option<String>| {
        bound.as_ref().map(|bound| {
            json!({"rule": format!("duration(self) {sign} duration('{bound}')"), "message": format!("must be {word} {bound}")})
        })
    };
    let mut found: Vec<Json> =
        [bound(">=", "at least", at_least), bound("<=", "at most", at_most)].into_iter().flatten().collect();
    if *format == Some(Format::UrlPath) {
        found.push(json!({
            "rule": "!self.matches('/[.][.]?(/|$)')",
            "message": format!("must be {}", Format::UrlPath.phrase()),
        }));
    }
    found
}

/// The text of every rule of the table.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    RULES.iter().chain(&LIMITS).chain([&SIGNALS]).map(|rule| rule.holds)
}
