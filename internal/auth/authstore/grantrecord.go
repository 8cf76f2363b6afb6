package authstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// kindGrant is the kind of the records of grants. SERVICE is the record of a service, which
// every change of its grants replaces, so that they come one after another;
// SERVICE/g/NAME is a permission group; SERVICE/r/TEXT is a part of one that is too large
// for a record. Parts are never changed, and belong to one state of one group.
const (
	kindGrant = store.Kind("p")
	groupDir  = "/g/"
	partDir   = "/r/"
)

// partBytes bounds the rights on resources in one record, in bytes of JSON. A group that has
// more is cut into parts.
const partBytes = 256 << 10

// grantRecord is one of three kinds of record.
type grantRecord struct {
	Service *serviceRecord `json:"service,omitempty"`
	Group   *groupRecord   `json:"group,omitempty"`
	Part    *partRecord    `json:"part,omitempty"`
}

// serviceRecord is the part of the grants that is per service.
type serviceRecord struct {
	Enforced bool `json:"enforced"`
}

// groupRecord is a permission group. A list that is nil is not there, an empty one is.
type groupRecord struct {
	Permissions []farm.Permission         `json:"permissions"`
	Resources   []farm.ResourcePermission `json:"resources"`
	// ids of the records that have Resources instead, in order
	Parts []string `json:"parts,omitempty"`
}

// partRecord is a part of a group's rights on resources.
type partRecord struct {
	CreatedAt time.Time                 `json:"made"`
	Resources []farm.ResourcePermission `json:"resources"`
}

type grantTable = store.Table[cachedRecord[grantRecord]]

func newGrantTable() *grantTable {
	return newTable(kindGrant, func(r grantRecord) ([]byte, error) { return json.Marshal(r) }, decodeGrant)
}

var errGrantForm = errors.New("record has no permissions")

func decodeGrant(raw []byte) (grantRecord, error) {
	var r grantRecord
	if err := json.Unmarshal(raw, &r); err != nil {
		return grantRecord{}, errGrantForm
	}
	kinds := 0
	for _, there := range []bool{r.Service != nil, r.Group != nil, r.Part != nil} {
		if there {
			kinds++
		}
	}
	if kinds != 1 || r.Group != nil && r.Group.Permissions == nil && r.Group.Resources == nil &&
		len(r.Group.Parts) == 0 {
		return grantRecord{}, errGrantForm
	}
	return r, nil
}

// storedGrants is the grants of a service as they are stored.
type storedGrants struct {
	grants          auth.Grants
	serviceRevision int64                  // of the service's record; 0: there is none
	groupParts      map[string][]string    // of groups
	unownedParts    map[string]unownedPart // parts that no group has
	damage          error                  // of records that cannot be read
}

// unownedPart is a part that no group has, or not yet.
type unownedPart struct {
	revision  int64
	createdAt time.Time
}

// assembleGrants assembles the grants of a service. What cannot be read grants nothing, and permissions
// stay enforced.
func assembleGrants(view *store.View[cachedRecord[grantRecord]], s farm.Service) *storedGrants {
	h := &storedGrants{
		grants: auth.Grants{
			Groups: map[string][]farm.Permission{}, Resources: map[string][]farm.ResourcePermission{},
		},
		groupParts: map[string][]string{}, unownedParts: map[string]unownedPart{},
	}
	if r, rev, ok := view.Get(string(s)); ok {
		h.serviceRevision = rev
		if r.Damage == nil && r.Value.Service != nil {
			h.grants.Enforced = r.Value.Service.Enforced
		} else {
			h.grants.Enforced = true
			h.recordDamage(string(s), r.Damage)
		}
	}
	for id := range recordsWithPrefix(view, string(s)+partDir) {
		h.addPart(view, id)
	}
	for id, r := range recordsWithPrefix(view, string(s)+groupDir) {
		if r.Damage != nil || r.Value.Group == nil {
			h.recordDamage(id, r.Damage)
			continue
		}
		h.addGroup(view, id, r.Value.Group)
	}
	return h
}

// recordsWithPrefix yields the records whose IDs begin with a prefix.
func recordsWithPrefix(
	view *store.View[cachedRecord[grantRecord]], prefix string,
) func(yield func(string, *cachedRecord[grantRecord]) bool) {
	return func(yield func(string, *cachedRecord[grantRecord]) bool) {
		for id, r := range view.Range(prefix, math.MaxInt) {
			if !strings.HasPrefix(id, prefix) || !yield(id, r) {
				return
			}
		}
	}
}

// recordDamage records that a record is damaged.
func (h *storedGrants) recordDamage(id string, why error) {
	if why == nil {
		why = errGrantForm
	}
	h.damage = errors.Join(h.damage, unreadable(kindGrant, id, why))
}

// addPart records a part without a group so far.
func (h *storedGrants) addPart(view *store.View[cachedRecord[grantRecord]], id string) {
	r, rev, _ := view.Get(id)
	if r.Damage != nil || r.Value.Part == nil {
		h.recordDamage(id, r.Damage)
		return
	}
	h.unownedParts[id] = unownedPart{rev, r.Value.Part.CreatedAt}
}

// addGroup adds a permission group.
func (h *storedGrants) addGroup(view *store.View[cachedRecord[grantRecord]], id string, g *groupRecord) {
	_, name, _ := strings.Cut(id, groupDir)
	resources := slices.Clip(g.Resources) // the record's own stay as they are
	for _, part := range g.Parts {
		r, _, ok := view.Get(part)
		if !ok || r.Damage != nil || r.Value.Part == nil {
			h.recordDamage(id, fmt.Errorf("its part %s is missing", part))
			return
		}
		resources = append(resources, r.Value.Part.Resources...)
		delete(h.unownedParts, part)
	}
	if g.Permissions != nil {
		h.grants.Groups[name] = g.Permissions
	}
	if resources != nil {
		h.grants.Resources[name] = resources
	}
	h.groupParts[name] = g.Parts
}

// splitRights cuts rights on resources into lists that each fit a record; one when they are few.
func splitRights(list []farm.ResourcePermission) (parts [][]farm.ResourcePermission, err error) {
	size, from := 0, 0
	for i, r := range list {
		raw, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("encode resource right on %s: %w", r.ID, err)
		}
		if size += len(raw) + 1; size > partBytes {
			parts = append(parts, list[from:i])
			size, from = len(raw)+1, i
		}
	}
	return append(parts, list[from:]), nil
}
