//! The words answers are made of: short ones, each a single token together with the space before it.

/// Each with its leading space.
pub(super) const WORDS: &[&str] = &[
    " the", " of", " and", " to", " in", " is", " that", " for", " it", " as", " was", " with", " be", " by", " on",
    " not", " he", " his", " but", " at", " are", " this", " have", " from", " or", " had", " an", " they", " which",
    " one", " you", " were", " all", " her", " she", " there", " would", " their", " we", " him", " been", " has",
    " when", " who", " will", " no", " more", " if", " out", " so", " up", " said", " what", " its", " about", " than",
    " into", " them", " can", " only", " other", " time", " new", " some", " could", " these", " two", " may",
    " first", " then", " do", " any", " like", " my", " now", " over", " such", " our", " man", " me", " even",
    " most", " made", " after", " also", " did", " many", " off", " before", " must", " well", " back", " years",
    " much", " where", " your", " way", " down", " should", " long", " each", " just", " state", " those", " too",
    " mister", " good", " very", " make", " world", " still", " see", " own", " work", " men", " day", " get", " here",
    " old", " life", " both", " under", " last", " never", " came", " place", " while", " again", " right", " small",
    " found", " went", " great", " power", " water", " light", " river", " stone", " paper", " green", " north",
    " cloud", " table", " music", " plant", " field", " night", " house", " metal", " sound", " front", " early",
    " quiet", " train", " clear", " order", " union", " white", " model", " large", " above", " point",
];
