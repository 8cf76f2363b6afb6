package portal

import "strings"

// Topics are kinds of things of which some have changed.
type Topics uint8

// The topics.
const (
	Instances Topics = 1 << iota
	Nodes
	Templates
	Groups
	Access // keys and permissions
	Events
	Errands
)

var topicNames = []string{"instances", "nodes", "templates", "groups", "access", "events", "errands"}

// String returns the names of topics, with commas.
func (t Topics) String() string {
	var names []string
	for i, name := range topicNames {
		if t&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// topicsOf reads what String has written. What it does not know is no topic.
func topicsOf(text string) (t Topics) {
	for name := range strings.SplitSeq(text, ",") {
		for i, known := range topicNames {
			if name == known {
				t |= 1 << i
			}
		}
	}
	return t
}
