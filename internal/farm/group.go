package farm

// Group is a node group. Fallback names the group that gets its requests when it is full.
type Group struct {
	ID          string `json:"id"`   // UUID
	Name        string `json:"name"` // no two groups have the same; its case counts
	Description string `json:"description"`
	Fallback    string `json:"fallback,omitempty"` // ID of a group
}

// FallbackCycle follows the fallbacks from a group. Where they lead back to it, it returns the
// names on the way, the group's own first and last; nil where they end. get returns the group of an
// ID, nil for none; the group itself is used as passed.
func FallbackCycle(g *Group, get func(id string) *Group) []string {
	names, seen := []string{g.Name}, map[string]bool{}
	for next := g.Fallback; next != "" && !seen[next]; {
		if next == g.ID {
			return append(names, g.Name)
		}
		seen[next] = true
		on := get(next)
		if on == nil {
			return nil
		}
		names, next = append(names, on.Name), on.Fallback
	}
	return nil
}
