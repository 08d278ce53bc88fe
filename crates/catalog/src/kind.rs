//! The four kinds of things an upstream lists, and what differs between their lists.

use vestibule_exchange::Profile;
use vestibule_terms::Method;

/// A kind of listed item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `tools/list`
    Tools,
    /// `prompts/list`
    Prompts,
    /// `resources/list`
    Resources,
    /// `resources/templates/list`
    Templates,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 4] = [Kind::Tools, Kind::Prompts, Kind::Resources, Kind::Templates];

    /// The kind a list method lists.
    pub fn of(method: Method) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == method)
    }

    /// The kinds whose lists a `list_changed` notification is about.
    pub fn changed_by(method: Method) -> &'static [Kind] {
        if method == Method::ToolsListChanged {
            &[Kind::Tools]
        } else if method == Method::PromptsListChanged {
            &[Kind::Prompts]
        } else if method == Method::ResourcesListChanged {
            &[Kind::Resources, Kind::Templates]
        } else {
            &[]
        }
    }

    /// The method that lists it.
    pub const fn method(self) -> Method {
        match self {
            Kind::Tools => Method::ToolsList,
            Kind::Prompts => Method::PromptsList,
            Kind::Resources => Method::ResourcesList,
            Kind::Templates => Method::ResourcesTemplatesList,
        }
    }

    /// The member of the result that holds the items.
    pub const fn member(self) -> &'static str {
        match self {
            Kind::Tools => "tools",
            Kind::Prompts => "prompts",
            Kind::Resources => "resources",
            Kind::Templates => "resourceTemplates",
        }
    }

    /// The member of an item that identifies it.
    pub const fn key(self) -> &'static str {
        match self {
            Kind::Tools | Kind::Prompts => "name",
            Kind::Resources => "uri",
            Kind::Templates => "uriTemplate",
        }
    }

    /// What one item is called in a sentence.
    pub const fn noun(self) -> &'static str {
        match self {
            Kind::Tools => "tool",
            Kind::Prompts => "prompt",
            Kind::Resources => "resource",
            Kind::Templates => "resource template",
        }
    }

    /// The server capability that offers the list.
    pub const fn capability(self) -> &'static str {
        match self {
            Kind::Tools => "tools",
            Kind::Prompts => "prompts",
            Kind::Resources | Kind::Templates => "resources",
        }
    }

    /// Whether an upstream offers the list: what it did not declare it is never asked for (CAP-02).
    pub fn offered_by(self, profile: &Profile) -> bool {
        profile.offers(self.capability())
    }

    /// Items of one page of a merged list.
    pub const fn page_size(self) -> usize {
        match self {
            Kind::Tools => 100,
            Kind::Prompts | Kind::Resources | Kind::Templates => 200,
        }
    }

    /// Whether items are identified by a URI (or template) rather than a name.
    pub const fn is_uri(self) -> bool {
        matches!(self, Kind::Resources | Kind::Templates)
    }

    /// One byte that no other kind has, for sealed handles.
    pub(crate) const fn tag(self) -> u8 {
        match self {
            Kind::Tools => b't',
            Kind::Prompts => b'p',
            Kind::Resources => b'r',
            Kind::Templates => b'm',
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Kind;
    use vestibule_terms::Method;

    #[test]
    fn list_methods_and_kinds_name_each_other() {
        for &method in Method::ALL {
            assert_eq!(Kind::of(method).is_some(), method.is_list(), "{method:?}");
        }
        assert_eq!(
            Kind::of(Method::ResourcesTemplatesList),
            Some(Kind::Templates)
        );
        let changed = Kind::changed_by(Method::ResourcesListChanged);
        assert_eq!(changed, [Kind::Resources, Kind::Templates]);
        assert!(Kind::changed_by(Method::ResourcesUpdated).is_empty());
    }
}
