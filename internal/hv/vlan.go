package hv

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseVLANs parses the VLANs that a node offers: IDs with a bridge of the host for each, as
// 10=br10, and IDs or ranges without one, as 20 or 100-110, whose bridges the driver creates. It
// returns the bridge of each ID, "" for the latter.
func ParseVLANs(items []string) (map[int]string, error) {
	vlans := map[int]string{}
	for _, item := range items {
		ids, bridge, given := strings.Cut(strings.TrimSpace(item), "=")
		first, last, ranged := strings.Cut(ids, "-")
		if !ranged {
			last = first
		}
		from, fromOK := parseVLANID(first)
		to, toOK := parseVLANID(last)
		switch {
		case !fromOK || !toOK || from > to:
			return nil,
				fmt.Errorf(
					"invalid VLAN %q: want an ID from 1 to %d, a range such as 100-110, or an ID with its bridge "+
						"such as 10=br10",
					item, MaxVLAN)
		case given && ranged:
			return nil, fmt.Errorf("VLAN %q: a range of VLANs cannot have a bridge", item)
		case given && !isBridgeName(bridge):
			return nil, fmt.Errorf("VLAN %q: invalid bridge name %q", item, bridge)
		}
		for id := from; id <= to; id++ {
			if old, twice := vlans[id]; twice && old != bridge {
				return nil, fmt.Errorf("VLAN %d occurs twice", id)
			}
			vlans[id] = bridge
		}
	}
	return vlans, nil
}

func parseVLANID(text string) (int, bool) {
	id, err := strconv.Atoi(text)
	return id, err == nil && id >= 1 && id <= MaxVLAN && len(text) <= 4 && text[0] != '+'
}

// isBridgeName reports whether a text can be the name of a network device of Linux.
func isBridgeName(text string) bool {
	return text != "" && len(text) <= 15 && text != "." && text != ".." &&
		!strings.ContainsFunc(text, func(r rune) bool {
			return r <= ' ' || r > '~' || r == '/' || r == ':' || r == '=' || r == ','
		})
}
