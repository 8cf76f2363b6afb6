package registry

import (
	"slices"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
)

// PushTarget describes the target of a push.
type PushTarget struct {
	TemplateID string // id
	Exists     bool   // the template exists, and was not created by this push
	Reverts    bool   // the push reverts versions
	Deleted    bool   // the template was deleted

	Tag       string // the new tag; "" when only the template is known
	ResumeKey string // of the push; likewise
}

// ParseID returns the normal form of a template's ID; false if it is not valid.
func ParseID(id string) (string, bool) { return layout.ParseID(id) }

// PushTarget returns the target of the push of a session.
func (r *Registry) PushTarget(session string) (PushTarget, error) {
	s, err := r.useSession(session)
	if err != nil {
		if done := r.resultOfSession(session); done != nil {
			return r.pushTargetFor(done.ID, false, session), nil
		}
		return PushTarget{}, err
	}
	t := r.pushTargetFor(s.templateID, s.request.Revert != nil, s.id)
	t.Tag, t.ResumeKey = s.request.Tag, s.request.ResumeKey
	return t, nil
}

// PushTargetFor returns the target of a possible push into a template; "" is a new one.
func (r *Registry) PushTargetFor(template string, reverts bool) PushTarget {
	id, _ := layout.ParseID(template)
	return r.pushTargetFor(id, reverts, "")
}

func (r *Registry) pushTargetFor(id string, reverts bool, session string) PushTarget {
	t := r.snapshot.Load().findTemplate(id)
	made := t != nil && session != "" &&
		slices.ContainsFunc(t.Versions, func(v layout.Version) bool { return v.Session == session })
	return PushTarget{TemplateID: id, Exists: t != nil && !made, Reverts: reverts, Deleted: t == nil &&
		r.deletedTemplates.has(id)}
}

// TemplatesWithLayer returns the IDs of the templates that have a version with a layer, in no order. It is empty for a
// layer that no template references, which is served only to pulls that have begun.
func (r *Registry) TemplatesWithLayer(root string) []string {
	parsed, err := blob.ParseDigest(root)
	if err != nil {
		return nil
	}
	snap := r.snapshot.Load()
	snap.namingOnce.Do(snap.indexLayers)
	return snap.templatesByLayer[parsed]
}

// HasLayer reports whether one of the given templates references a layer, or no template does. In the latter
// case the layer is served only to pulls that have begun. The IDs are in normal form.
func (r *Registry) HasLayer(templates []string, root string) bool {
	parsed, err := blob.ParseDigest(root)
	if err != nil {
		return false
	}
	r.mu.Lock()
	loose := r.layerRefs[parsed] == 0
	r.mu.Unlock()
	snap := r.snapshot.Load()
	return loose || slices.ContainsFunc(templates, func(id string) bool {
		e := snap.templates[id]
		return e != nil && e.layers()[parsed]
	})
}

// indexLayers indexes which layers the templates have. It runs at the first use, since few callers need it.
func (s *snapshot) indexLayers() {
	s.templatesByLayer = map[blob.Digest][]string{}
	for id, e := range s.templates {
		for root := range e.layers() {
			s.templatesByLayer[root] = append(s.templatesByLayer[root], id)
		}
	}
}
