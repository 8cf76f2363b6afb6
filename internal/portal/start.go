package portal

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/portal/format"
	"github.com/buildyard/buildyard/internal/portal/snippet"
)

func (p *portal) startActions() []action {
	return []action{{
		pattern: "/instances/start", templateName: "start", title: "Start instance", buildForm: askStart,
		perform: doStart,
	}}
}

// startForm is the form that starts instances.
type startForm struct {
	TemplateID            string
	TemplateError         string
	Templates             []api.Template // the last pushed first
	TooMany               bool           // to list them
	TemplatesHiddenReason string         // they are not listed
	Tags                  []tagChoice
	Nodes                 []string // names that continue what was typed
	MainFields, More      []startField
	Sections              []startSection // More by its sections
	StartError            string
	NodeError             string // why the named node is none
	Key                   string
	Count                 int
	Will                  []forecast
	Snippets              []snippet.Snippet
}

// startSection is fields of the form that are folded.
type startSection struct {
	ID, Name, Summary string
	Fields            []startField
	Open              bool // one of them is set
}

// readStartForm reads the form: the request that it makes, and the form as it was filled in.
func readStartForm(v *visit) (client.StartRequest, startForm) {
	r := client.StartRequest{TemplateID: strings.TrimSpace(v.query.Get("vmid"))}
	f := startForm{
		TemplateID: r.TemplateID, MainFields: slices.Clone(firstFields), More: slices.Clone(startFields),
		Key: v.query.Get("key"),
	}
	if f.Key == "" {
		f.Key = client.NewKey()
	}
	for _, fields := range [][]startField{f.MainFields, f.More} {
		for i := range fields {
			field := &fields[i]
			if field.Value = strings.TrimSpace(v.query.Get(field.Name)); field.Value == "" {
				continue
			}
			if err := field.setValue(&r, field.Value); err != nil {
				field.FieldError = err.Error()
			}
		}
	}
	if id, err := nodeIDOf(v, r.NodeID); err != nil {
		f.NodeError = err.Error()
		f.setError("node_id: " + f.NodeError)
	} else {
		r.NodeID = id
	}
	f.Count = max(r.Count, 1)
	return r, f
}

// nodeIDOf returns the ID of a node that is named by its name or ID.
func nodeIDOf(v *visit, text string) (string, error) {
	if _, err := uuid.Parse(text); text == "" || err == nil {
		return text, nil
	}
	page, err := v.NodePage(v, client.PageOptions{Filter: "name:" + format.QuotedFilterValue(text), Limit: 2})
	if err != nil {
		return "", errors.New("the node was not looked up: " + notShownReason(err))
	}
	if page.Total == 0 {
		return "", errors.New("no node has this name")
	}
	if page.Total > 1 {
		return "", errors.New("several nodes have this name: use an ID")
	}
	return page.Nodes[0].NodeID, nil
}

const (
	maxTemplates = 200 // that are listed; of more some are suggested
	fewSuggested = 20
)

// addChoices adds what can be chosen, what the request would do, and the request as code. What the visitor may not see
// is typed instead.
func (f *startForm) addChoices(v *visit, r *client.StartRequest) {
	f.addTemplates(v)
	templateName := ""
	if f.TemplateID != "" {
		if t, err := v.Template(v, f.TemplateID); err == nil {
			f.Tags, templateName = tagChoices(v, t, ""), t.Name
		}
	}
	f.addNodeNames(v)
	groups := []choice{{"", "any"}}
	if list, err := v.Groups(v, client.ListOptions{}); err == nil {
		for _, g := range list {
			groups = append(groups, choice{g.ID, g.Name})
		}
	}
	for i := range f.MainFields {
		switch field := &f.MainFields[i]; field.Name {
		case "group_id":
			field.Choices = includeChoice(groups, field.Value)
		case "tag":
			field.Hint = "Empty: the latest."
			if len(f.Tags) > 0 {
				field.Hint = "Empty: the latest, now " + f.Tags[0].Tag + "."
			}
		}
	}
	f.addActingGroup(v.canDo())
	f.Sections = startSections(f.More)
	f.Will = forecasts(v, r, f.NodeError)
	f.Snippets = v.caller().Start(r, templateName)
}

// addTemplates adds the templates; of too many some that have what was typed in them.
func (f *startForm) addTemplates(v *visit) {
	page, err := v.TemplatePage(v, client.PageOptions{Sort: "pushed", Limit: maxTemplates})
	f.TemplatesHiddenReason = notShownReason(err)
	rows := page.Templates
	if f.TooMany = page.Total > maxTemplates; f.TooMany {
		rows = rows[:min(fewSuggested, len(rows))]
		if _, err := uuid.Parse(f.TemplateID); err != nil && f.TemplateID != "" {
			typed := format.QuotedFilterValue(f.TemplateID)
			some := client.PageOptions{Filter: typed, Sort: "name", Limit: fewSuggested}
			if page, err := v.TemplatePage(v, some); err == nil {
				rows = page.Templates
			}
		}
	}
	for _, r := range rows {
		f.Templates = append(f.Templates, r.Template)
	}
}

// addNodeNames adds names of nodes that continue what was typed.
func (f *startForm) addNodeNames(v *visit) {
	i := slices.IndexFunc(f.More, func(x startField) bool { return x.Name == "node_id" })
	filter := ""
	if typed := f.More[i].Value; typed != "" {
		filter = "name:" + format.FilterValue(typed+"*")
	}
	page, err := v.NodePage(v, client.PageOptions{Filter: filter, Sort: "name", Limit: fewSuggested})
	if err != nil {
		return // an ID can be typed
	}
	for _, n := range page.Nodes {
		f.Nodes = append(f.Nodes, n.NodeName)
	}
}

// startSections parts fields by their sections. The summary of one names the values that are set.
func startSections(fields []startField) (list []startSection) {
	for _, field := range fields {
		if field.Section != "" {
			list = append(list, startSection{ID: field.Name, Name: field.Section, Summary: field.Default})
		}
		s := &list[len(list)-1]
		if field.Value != "" {
			set := field.Label
			if len(field.Value) <= 20 {
				set += " " + field.Value
			}
			if len(s.Fields) > 0 && slices.ContainsFunc(s.Fields, func(x startField) bool { return x.Value != "" }) {
				set = s.Summary + ", " + set
			}
			s.Summary = set
		}
		s.Open = s.Open || field.FieldError != "" || field.Value != ""
		s.Fields = append(s.Fields, field)
	}
	return list
}

// addActingGroup adds the permission group to the first fields where one has to be named, and removes the
// node group, which applies elsewhere.
func (f *startForm) addActingGroup(m *capabilities) {
	if !m.managed() {
		return
	}
	at := func(fields []startField, name string) int {
		return slices.IndexFunc(fields, func(x startField) bool { return x.Name == name })
	}
	group := f.More[at(f.More, "group")]
	group.Hint = "The permission group to act as."
	if all := m.actingGroups(); len(all) > 0 {
		group.Kind = "choice"
		for _, name := range all {
			group.Choices = append(group.Choices, choice{name, name})
		}
		group.Choices = includeChoice(group.Choices, group.Value)
	}
	f.More = slices.Delete(f.More, at(f.More, "group"), at(f.More, "group")+1)
	f.MainFields = slices.Delete(f.MainFields, at(f.MainFields, "group_id"), at(f.MainFields, "group_id")+1)
	f.MainFields = append(f.MainFields, group)
}

// includeChoice returns choices that include the chosen one.
func includeChoice(all []choice, chosen string) []choice {
	if slices.ContainsFunc(all, func(c choice) bool { return c.Value == chosen }) {
		return all
	}
	if chosen == "" {
		return append([]choice{{"", "choose one"}}, all...)
	}
	return append(all, choice{chosen, chosen})
}

func askStart(v *visit) (any, error) {
	r, f := readStartForm(v)
	f.addChoices(v, &r)
	return f, nil
}

// fieldErrorPattern matches the API's messages about a field.
var fieldErrorPattern = regexp.MustCompile(`^([a-z_]+)(?:(?:\[\d+\][a-z_.]*)?:)? (.+)$`)

// setError assigns the API's error about a request to the field that it concerns.
func (f *startForm) setError(message string) {
	m := fieldErrorPattern.FindStringSubmatch(message)
	for _, fields := range [][]startField{f.MainFields, f.More} {
		for i := range fields {
			if m != nil && fields[i].Name == m[1] {
				fields[i].FieldError = m[2]
				return
			}
		}
	}
	if m != nil && m[1] == "vmid" {
		f.TemplateError = m[2]
		return
	}
	f.StartError = message
}

func (f *startForm) hasErrors() bool {
	bad := func(x startField) bool { return x.FieldError != "" }
	return f.StartError != "" || f.TemplateError != "" || slices.ContainsFunc(f.MainFields, bad) ||
		slices.ContainsFunc(f.More, bad)
}

// retryableCodes are the failures of a start that its form can mend.
var retryableCodes = []client.Code{
	client.ErrInvalid, client.ErrRefused, client.ErrNotFound, client.ErrNoVersion,
	client.ErrConflict, client.ErrTooLarge,
}

func doStart(v *visit) (actionResult, error) {
	r, f := readStartForm(v)
	if v.query.Get("preview") == "1" {
		f.addChoices(v, &r)
		return actionResult{Form: f}, nil
	}
	var ids []string
	if !f.hasErrors() {
		r.IdempotencyKey = f.Key
		var err error
		ids, err = v.Start(v, r)
		if err != nil && !slices.Contains(retryableCodes, client.CodeOf(err)) {
			return actionResult{}, err
		}
		if err != nil {
			f.setError(notShownReason(err))
		}
	}
	if f.hasErrors() {
		f.Key = client.NewKey()
		f.addChoices(v, &r)
		return actionResult{Form: f, Invalid: true}, nil
	}
	if len(ids) == 1 {
		return actionResult{ResultPath: "/instances/" + url.PathEscape(ids[0])}, nil
	}
	out := actionResult{Back: "/instances"}
	for _, id := range ids {
		out.Items = append(out.Items, itemResult{Name: id, Path: "/instances/" + url.PathEscape(id), Said: "Requested"})
	}
	out.withStates(v, "instances", ids)
	return out, nil
}
