package controllerrest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/search"
)

// foundInstance is an instance, or one of the history.
type foundInstance struct {
	current *farm.Instance        // nil: it is of the history
	past    *farm.InstanceHistory // nil: it is current
	instanceOrder
}

// instanceOrder is what orders instances that match as well. It is kept with the text of an instance: reading it from
// each of the instances takes longer than searching their texts.
type instanceOrder struct {
	created      int64 // in ns since 1970
	isEnding     bool  // Terminating or Terminated
	isTerminated bool
}

// compare orders terminated instances behind the others, and the newest first.
func (i foundInstance) compare(other foundInstance) int {
	switch {
	case i.isTerminated == other.isTerminated:
		return cmp.Compare(other.created, i.created)
	case i.isTerminated:
		return 1
	}
	return -1
}

func orderOfInstance(inst *farm.Instance) instanceOrder {
	isTerminated := inst.State == farm.Terminated
	return instanceOrder{inst.Created.UnixNano(), isTerminated || inst.State == farm.Terminating, isTerminated}
}

func orderOfPast(past *farm.InstanceHistory) instanceOrder {
	return instanceOrder{past.Created.UnixNano(), true, true}
}

// instance returns what a search shows of the instance.
func (i foundInstance) instance() *farm.Instance {
	past := i.past
	if past == nil {
		return i.current
	}
	return &farm.Instance{
		ID: past.ID, Name: past.Name, ExternalID: past.ExternalID, State: farm.Terminated, Created: past.Created,
		Template: farm.TemplateRef{ID: past.TemplateID, Name: past.TemplateName, Tag: past.Tag},
		NodeID:   past.NodeID, NodeName: past.NodeName,
	}
}

// findInstances finds instances, and terminated ones as long as the history has them, which follow those that match
// as well. Terminated ones are found by what identifies them.
func (f *searcher) findInstances(context.Context) {
	current := f.server.instanceTexts.of(f.server.controller.Instances.Rows())
	ending := map[string]bool{} // these may be in the history when that is read
	for _, row := range current {
		if row.isEnding {
			ending[row.record.ID()] = true
		}
	}
	best, past := search.NewBest(f.limit, foundInstance.compare), search.NewBest(f.limit, foundInstance.compare)
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, row := range f.server.historyTexts.of(f.server.controller.History.Rows()) {
			if rank, ok := f.query.Rank(row.text); ok && !ending[row.record.Value().ID] {
				past.Add(foundInstance{past: row.record.Value(), instanceOrder: row.instanceOrder}, rank)
			}
		}
	})
	for _, row := range current {
		if rank, ok := f.rankInstance(row); ok {
			best.Add(foundInstance{current: row.record.Value(), instanceOrder: row.instanceOrder}, rank)
		}
	}
	wg.Wait()
	f.result.Terminated = past.Total()
	best.Merge(past)
	addBest(f, api.SearchInstance, best, func(i foundInstance) { f.setInstance(i.instance()) },
		func(i foundInstance) api.SearchMatch { return f.showInstance(i.instance()) })
}

// addFields adds the fields that have a text.
func addFields(to []search.Field, fields ...search.Field) []search.Field {
	for _, field := range fields {
		if field.Text != "" {
			to = append(to, field)
		}
	}
	return to
}

// nameFields adds what identifies an instance.
func nameFields(to []search.Field, id, name, externalID string) []search.Field {
	return addFields(to, search.Field{Name: "id", Text: id, IsID: true},
		search.Field{Name: "name", Text: name, IsID: true},
		search.Field{Name: "external_id", Text: externalID, IsID: true})
}

// searchedPast adds what a terminated instance is searched for.
func searchedPast(to []search.Field, past *farm.InstanceHistory) []search.Field {
	return nameFields(to, past.ID, past.Name, past.ExternalID)
}

// searchedInstance adds what an instance is searched for, with everything that its caller may not see.
func searchedInstance(to []search.Field, inst *farm.Instance) []search.Field {
	to = nameFields(to, inst.ID, inst.Name, inst.ExternalID)
	to = addFields(to, search.Field{Name: "tag", Text: inst.Template.Tag},
		search.Field{Name: "template", Text: inst.Template.Name}, search.Field{Name: nodeField, Text: inst.NodeName},
		search.Field{Name: "owner", Text: inst.Owner}, search.Field{Name: "mac", Text: macOfInstance(inst)},
		search.Field{Name: "message", Text: inst.Message})
	if inst.VM != nil {
		to = addFields(to, search.Field{Name: "ip", Text: inst.VM.IP, IsID: true})
	}
	first := len(to)
	for key, value := range inst.Metadata {
		to = append(to, search.Field{Name: "metadata", Key: key, Text: scalarText(value)})
	}
	slices.SortFunc(to[first:], func(a, b search.Field) int { return strings.Compare(a.Key, b.Key) })
	return to
}

// hidden reports which fields of an instance the caller may not see.
func (f *searcher) hidden(inst *farm.Instance) (template, node bool) {
	return !f.seen.seesTemplate(inst.Template.ID), inst.NodeID != "" && !f.seen.seesNode(inst.NodeID)
}

// setInstance sets the fields of an instance that the caller may see.
func (f *searcher) setInstance(inst *farm.Instance) {
	f.fields = searchedInstance(f.fields[:0], inst)
	if hidesTemplate, hidesNode := f.hidden(inst); hidesTemplate || hidesNode {
		f.fields = slices.DeleteFunc(f.fields, func(one search.Field) bool {
			return one.Name == "template" && hidesTemplate ||
				(one.Name == nodeField || one.Name == "message") && hidesNode
		})
	}
}

// rankInstance returns how well an instance matches by what the caller may see.
func (f *searcher) rankInstance(row searchRow[farm.Instance]) (search.Rank, bool) {
	rank, ok := f.query.Rank(row.text)
	if !ok || !f.seen.isRestricted {
		return rank, ok
	}
	inst := row.record.Value()
	if hidesTemplate, hidesNode := f.hidden(inst); hidesTemplate || hidesNode {
		f.setInstance(inst)
		m, ok := f.query.Match(f.fields)
		return m.Rank, ok
	}
	return rank, true
}

func (f *searcher) showInstance(inst *farm.Instance) api.SearchMatch {
	var detail []string
	if f.seen.seesTemplate(inst.Template.ID) {
		detail = append(detail, inst.Template.Name+":"+inst.Template.Tag)
	}
	if inst.NodeName != "" && f.seen.seesNode(inst.NodeID) {
		detail = append(detail, "on "+inst.NodeName)
	}
	return api.SearchMatch{
		ID: inst.ID, Name: cmp.Or(inst.Name, inst.ExternalID), Detail: strings.Join(detail, " "),
		State: string(inst.State),
	}
}

func (f *searcher) findNodes(context.Context) {
	byName := func(a, b *farm.Node) int { return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID)) }
	best := search.NewBest(f.limit, byName)
	for node := range f.server.controller.Nodes.Records() {
		if !f.seen.seesNode(node.ID) {
			continue
		}
		f.setNode(node)
		if m, ok := f.query.Match(f.fields); ok {
			best.Add(node, m.Rank)
		}
	}
	addBest(f, api.SearchNode, best, f.setNode, func(node *farm.Node) api.SearchMatch {
		return api.SearchMatch{
			ID: node.ID, Name: node.Name, State: string(node.VisibleState()),
			Detail: strings.Join(slices.DeleteFunc(append([]string{node.Host}, f.groupNames(node)...), isEmpty), ", "),
		}
	})
}

func isEmpty(text string) bool { return text == "" }

func (f *searcher) setNode(node *farm.Node) {
	f.setFields(
		search.Field{Name: "id", Text: node.ID, IsID: true}, search.Field{Name: "name", Text: node.Name, IsID: true},
		search.Field{Name: "host", Text: node.Host, IsID: true},
	)
	for _, name := range f.groupNames(node) {
		f.fields = append(f.fields, search.Field{Name: "group", Text: name})
	}
}

// groupNames returns the names of the groups of a node; "" for one that was deleted.
func (f *searcher) groupNames(node *farm.Node) []string {
	names := make([]string, len(node.Groups))
	for i, id := range node.Groups {
		names[i] = f.server.controller.Groups.Name(id)
	}
	return names
}

// searchedTemplate is a template with the tags that are known of it.
type searchedTemplate struct {
	api.Template
	known *record.KnownTemplate // nil: only its newest tag is known
}

func (f *searcher) findTemplates(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, searchRegistryTimeout)
	defer cancel()
	list, err := f.server.controller.Templates.List(ctx)
	if farm.CodeOf(err) == farm.CodeForbidden {
		return
	}
	known := f.server.controller.Templates.Known()
	if err != nil { // what is known must do
		f.result.Incomplete = append(f.result.Incomplete, api.SearchTemplate)
		visible := f.server.controller.Templates.Visible(ctx)
		for id, k := range known {
			if visible(id) {
				list = append(list, api.Template{ID: id, Name: k.Name, VersionCount: len(k.Versions)})
			}
		}
	}
	byName := func(a, b searchedTemplate) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	}
	best := search.NewBest(f.limit, byName)
	for _, t := range list {
		one := searchedTemplate{t, known[t.ID]}
		f.setTemplate(one)
		if m, ok := f.query.Match(f.fields); ok {
			best.Add(one, m.Rank)
		}
	}
	addBest(f, api.SearchTemplate, best, f.setTemplate, showTemplate)
}

func (f *searcher) setTemplate(t searchedTemplate) {
	f.setFields(
		search.Field{Name: "id", Text: t.ID, IsID: true}, search.Field{Name: "name", Text: t.Name, IsID: true},
		search.Field{Name: "tag", Text: t.LatestTag},
	)
	if t.known == nil {
		return
	}
	for _, v := range slices.Backward(t.known.Versions) {
		if v.Tag != t.LatestTag {
			f.fields = append(f.fields, search.Field{Name: "tag", Text: v.Tag})
		}
	}
}

func showTemplate(t searchedTemplate) api.SearchMatch {
	var detail []string
	if t.LatestTag != "" {
		detail = append(detail, "latest tag "+t.LatestTag)
	}
	if t.Arch != "" {
		detail = append(detail, t.Arch)
	}
	return api.SearchMatch{ID: t.ID, Name: t.Name, Detail: strings.Join(detail, ", ")}
}

func (f *searcher) findGroups(context.Context) {
	byName := func(a, b *farm.Group) int { return strings.Compare(a.Name, b.Name) }
	best := search.NewBest(f.limit, byName)
	for _, group := range f.server.controller.Groups.List() {
		f.setGroup(group)
		if m, ok := f.query.Match(f.fields); ok {
			best.Add(group, m.Rank)
		}
	}
	addBest(f, api.SearchGroup, best, f.setGroup, func(g *farm.Group) api.SearchMatch {
		return api.SearchMatch{ID: g.ID, Name: g.Name, Detail: farm.Clip(g.Description, maxMatchText)}
	})
}

func (f *searcher) setGroup(g *farm.Group) {
	f.setFields(
		search.Field{Name: "id", Text: g.ID, IsID: true}, search.Field{Name: "name", Text: g.Name, IsID: true},
		search.Field{Name: "description", Text: g.Description},
	)
}

func (f *searcher) findKeys(context.Context) {
	best := search.NewBest(f.limit, func(a, b farm.APIKey) int { return strings.Compare(a.ID, b.ID) })
	for _, key := range f.server.listKeys() {
		f.setKey(key)
		if m, ok := f.query.Match(f.fields); ok {
			best.Add(key, m.Rank)
		}
	}
	addBest(f, api.SearchKey, best, f.setKey, func(k farm.APIKey) api.SearchMatch {
		state := "active"
		if k.Expired(time.Now()) {
			state = "expired"
		}
		return api.SearchMatch{ID: k.ID, Name: k.ID, Detail: strings.Join(k.Groups, ", "), State: state}
	})
}

func (f *searcher) setKey(k farm.APIKey) {
	f.setFields(search.Field{Name: "id", Text: k.ID, IsID: true})
	for _, group := range k.Groups {
		f.fields = append(f.fields, search.Field{Name: "group", Text: group})
	}
}
