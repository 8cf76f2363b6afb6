package api

// The kinds of records that a search finds.
const (
	SearchInstance = "instance"
	SearchNode     = "node"
	SearchTemplate = "template"
	SearchGroup    = "group"
	SearchKey      = "key" // an API key
)

// SearchResult is the body of GET /api/v1/search: what the caller may see and what matches a text.
type SearchResult struct {
	// Matches are the best of each kind, the best first: at most limit of a kind. Never null.
	Matches []SearchMatch `json:"matches"`
	// Totals are the records that match, by kind, of the kinds that the caller may list.
	Totals map[string]int `json:"totals"`
	// Terminated are those of the instances that are in the history only.
	Terminated int `json:"terminated,omitempty"`
	// Incomplete are the kinds of which some may be missing, since the registry cannot be reached. Never null.
	Incomplete []string `json:"incomplete"`
}

// SearchMatch is a record that a search has found.
type SearchMatch struct {
	Kind   string      `json:"kind"` // instance, node, template, group or key
	ID     string      `json:"id"`
	Name   string      `json:"name"`   // "": it has none
	Detail string      `json:"detail"` // what distinguishes it for a reader, such as template and node
	State  string      `json:"state"`  // of instances, nodes and keys; "" for others
	Rank   string      `json:"rank"`   // exact, prefix, word or substring
	Match  SearchField `json:"match"`
}

// SearchField is the field of a record that matches best.
type SearchField struct {
	Field string `json:"field"` // such as name, or metadata.branch
	Text  string `json:"text"`  // its first 200 bytes
}

// Completion is the body of GET /api/v1/filter/complete: how the last word of a filter can go on.
type Completion struct {
	Start  int               `json:"start"`  // position in bytes of the word that is replaced
	Fields []CompletionField `json:"fields"` // whose names begin with the word; never null
	Values []CompletionValue `json:"values"` // the most frequent first; never null
}

// CompletionField is a field of a filter.
type CompletionField struct {
	Name string `json:"name"`
	Text string `json:"text"` // what it is, or how it is compared
}

// CompletionValue is a value of a field.
type CompletionValue struct {
	Value string `json:"value"` // the term that replaces the word, such as -state:Started
	Text  string `json:"text"`  // the value alone
	Count int    `json:"count"` // of the records that match the filter before the word and have the value
}
