package registry

import (
	"maps"
	"slices"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
)

// PushTarget is what a push is about.
type PushTarget struct {
	Template string // id
	Exists   bool   // there is such a template, and this push did not make it
	Reverts  bool   // versions of it go with the push
}

// PushTarget says what the push of a session is about.
func (r *Registry) PushTarget(session string) (PushTarget, error) {
	s, err := r.session(session)
	if err != nil {
		if done := r.committedAs(session); done != nil {
			return r.targetOf(done.ID, false, session), nil
		}
		return PushTarget{}, err
	}
	return r.targetOf(s.target, s.request.Revert != nil, s.id), nil
}

// TargetOf says what a push into a template would be about; "" is a new one.
func (r *Registry) TargetOf(template string, reverts bool) PushTarget {
	id, _ := layout.ParseID(template)
	return r.targetOf(id, reverts, "")
}

func (r *Registry) targetOf(id string, reverts bool, session string) PushTarget {
	t := r.snap.Load().template(id)
	made := t != nil && session != "" && slices.ContainsFunc(t.Versions, func(v layout.Version) bool { return v.Session == session })
	return PushTarget{Template: id, Exists: t != nil && !made, Reverts: reverts}
}

// Naming gives the templates of which a version has a layer: their ids, in no order. It is empty
// for a layer that none has any more, which only goes on to be served to pulls that have begun.
func (r *Registry) Naming(root string) []string {
	parsed, err := blob.ParseRoot(root)
	if err != nil {
		return nil
	}
	snap := r.snap.Load()
	snap.named.Do(snap.name)
	return snap.naming[parsed]
}

// name notes which layers the templates have. Few ask for it, so that it waits for the first.
func (s *snapshot) name() {
	s.naming = map[blob.Root][]string{}
	for id, e := range s.templates {
		roots := map[blob.Root]bool{}
		for i := range e.t.Versions {
			for root := range layersOf(&e.t.Versions[i]) {
				roots[root] = true
			}
		}
		for root := range maps.Keys(roots) {
			s.naming[root] = append(s.naming[root], id)
		}
	}
}
