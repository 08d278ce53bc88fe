//! `strict_fields`: display members that a revision does not define, by kind of list item. Off by
//! default, because unknown members pass (AMB-35).

use vestibule_terms::Revision;

/// The members of an item of the list `list` that are newer than `revision`.
pub(super) fn foreign(list: &str, revision: Revision) -> &'static [&'static str] {
    let tools = list == "tools";
    match revision {
        Revision::R2024_11_05 if tools => &[
            "annotations",
            "title",
            "outputSchema",
            "_meta",
            "icons",
            "execution",
        ],
        Revision::R2025_03_26 if tools => &["title", "outputSchema", "_meta", "icons", "execution"],
        Revision::R2025_06_18 if tools => &["icons", "execution"],
        Revision::R2024_11_05 | Revision::R2025_03_26 => &["title", "_meta", "icons"],
        Revision::R2025_06_18 => &["icons"],
        Revision::R2025_11_25 | Revision::R2026_07_28 => &[],
    }
}
