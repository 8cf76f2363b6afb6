package portal

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/farm"
)

func (p *portal) poolActions() []action {
	return []action{
		{pattern: "/pools/new", templateName: "pooledit", title: "Create pool", buildForm: askPool, perform: doPool},
		{
			pattern: "/pools/{id}/edit", templateName: "pooledit", title: "Edit pool", buildForm: askPool,
			perform: doPool,
		},
		{
			pattern: "/pools/{id}/delete", templateName: "pooldelete", title: "Delete pool", buildForm: askDeletePool,
			perform: doDeletePool,
		},
	}
}

// poolValues are the fields of the form of a pool, as text.
type poolValues struct {
	Name, TemplateID, Tag, GroupID, MinIdle, Schedule, TimeZone, MaxAge string
}

// poolForm is the form of a pool; that of a new one has no ID.
type poolForm struct {
	poolValues
	ID           string
	Was          poolValues // what the form has shown first
	TemplateName string     // of a pool that exists: its template stays

	Templates             []api.Template
	TooMany               bool // for a list: some are suggested
	TemplatesHiddenReason string
	Groups                []choice
	GroupsHiddenReason    string
	FormError             string
}

// readPoolValues reads the fields of a form whose names begin with a prefix.
func readPoolValues(q url.Values, prefix string) poolValues {
	get := func(name string) string { return strings.TrimSpace(q.Get(prefix + name)) }
	return poolValues{
		Name: get("name"), TemplateID: get("template_id"), Tag: get("tag"), GroupID: get("group_id"),
		MinIdle: get("min_idle"), Schedule: get("schedule"), TimeZone: get("time_zone"), MaxAge: get("max_age"),
	}
}

func newPoolValues(p poolRow) poolValues {
	out := poolValues{
		Name: p.Name, TemplateID: p.TemplateID, Tag: p.Tag, MinIdle: strconv.Itoa(p.MinIdle),
		Schedule: strings.Join(p.Windows(), "\n"), TimeZone: p.TimeZone, MaxAge: p.AgeLimit(),
	}
	if p.GroupID != nil {
		out.GroupID = *p.GroupID
	}
	return out
}

func askPool(v *visit) (any, error) {
	f := poolForm{ID: v.request.PathValue("id")}
	if f.ID == "" {
		f.poolValues = readPoolValues(v.query, "")
		if f.MinIdle == "" {
			f.MinIdle = "1"
		}
	} else {
		p, err := v.Pool(v, f.ID)
		if err != nil {
			return nil, err
		}
		row := poolRow{Pool: p}
		f.poolValues, f.TemplateName = newPoolValues(row), row.Template()
		f.Was = f.poolValues
		v.title = "Edit pool " + p.Name
	}
	f.addChoices(v)
	return f, nil
}

// addChoices adds what can be chosen. What the visitor may not see is typed instead.
func (f *poolForm) addChoices(v *visit) {
	if f.ID == "" {
		templates := startForm{TemplateID: f.TemplateID}
		templates.addTemplates(v)
		f.Templates, f.TooMany = templates.Templates, templates.TooMany
		f.TemplatesHiddenReason = templates.TemplatesHiddenReason
	}
	groups, err := v.Groups(v, client.ListOptions{})
	f.GroupsHiddenReason = notShownReason(err)
	f.Groups = []choice{{"", "none"}}
	for _, g := range groups {
		f.Groups = append(f.Groups, choice{g.ID, g.Name})
	}
	f.Groups = includeChoice(f.Groups, f.GroupID)
}

func doPool(v *visit) (actionResult, error) {
	id := v.request.PathValue("id")
	f := poolForm{ID: id, poolValues: readPoolValues(v.query, ""), Was: readPoolValues(v.query, "was_")}
	r, err := poolRequest(v.query, id != "")
	if err == nil && id == "" {
		var made api.Pool
		made, err = v.CreatePool(v, r)
		id = made.ID
	} else if err == nil {
		err = v.UpdatePool(v, id, r)
	}

	switch client.CodeOf(err) {
	case client.ErrInvalid, client.ErrRefused, client.ErrConflict: // the form again, with what was typed
		f.FormError = notShownReason(err)
		if f.ID != "" {
			if p, err := v.Pool(v, f.ID); err == nil {
				f.TemplateName = poolRow{Pool: p}.Template()
			}
		}
		f.addChoices(v)
		return actionResult{Form: f, Invalid: true}, nil
	}
	return actionResult{ResultPath: "/pools/" + url.PathEscape(id)}, err
}

// poolRequest returns the request of a form: of a change, only the fields that the visitor has changed.
func poolRequest(q url.Values, isChange bool) (r client.PoolRequest, err error) {
	f := readPoolValues(q, "")
	if isFieldChanged(q, "name") {
		r.Name = f.Name
	}
	if isFieldChanged(q, "tag") {
		r.Tag = &f.Tag
	}
	if isFieldChanged(q, "time_zone") {
		r.TimeZone = &f.TimeZone
	}
	if isFieldChanged(q, "group_id") {
		r.GroupID = f.GroupID
		if r.GroupID == "" && isChange {
			r.GroupID = client.NoGroup
		}
	}
	if !isChange {
		r.TemplateID = f.TemplateID
	}
	if f.Name == "" && (!isChange || q.Has("name")) {
		return r, formError("Name required")
	}
	if !isChange && f.TemplateID == "" {
		return r, formError("Template required")
	}

	if isFieldChanged(q, "min_idle") {
		n, err := strconv.Atoi(f.MinIdle)
		if err != nil {
			return r, formError("Invalid number of standbys: want a whole number, 0 or more")
		}
		r.MinIdle = &n
	}
	if isFieldChanged(q, "max_age") {
		age, err := parseAge(f.MaxAge)
		if err != nil {
			return r, err
		}
		r.MaxAge = &age
	}
	// Browsers end lines with CR and LF, whatever the field had.
	same := q.Has("was_schedule") && slices.Equal(strings.Fields(f.Schedule), strings.Fields(q.Get("was_schedule")))
	if q.Has("schedule") && !same {
		r.Schedule, err = parseSchedule(f.Schedule)
	}
	return r, err
}

// parseSchedule parses windows with blanks or line ends between them.
func parseSchedule(text string) (*[]api.PoolWindow, error) {
	list := []api.PoolWindow{}
	for field := range strings.FieldsSeq(text) {
		w, err := farm.ParsePoolWindow(field)
		if err == nil {
			err = w.Check()
		}
		if err != nil {
			return nil, formError("Schedule: " + err.Error())
		}
		if len(list) == farm.MaxPoolWindows {
			return nil, formError("Schedule: window limit (" + strconv.Itoa(farm.MaxPoolWindows) + ") reached")
		}
		list = append(list, api.PoolWindow(w))
	}
	return &list, nil
}

// parseAge parses an age such as 12h or 2d, in seconds; "" and 0 are unlimited.
func parseAge(text string) (int64, error) {
	bad := formError("Invalid maximum age: want a duration such as 12h or 2d, at most 365d")
	if text == "" || text == "0" {
		return 0, nil
	}
	var age time.Duration
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > int(farm.MaxPoolAge/(24*time.Hour)) {
			return 0, bad
		}
		age = time.Duration(n) * 24 * time.Hour
	} else {
		var err error
		if age, err = time.ParseDuration(text); err != nil || age < 0 || age > farm.MaxPoolAge {
			return 0, bad
		}
	}
	return int64(age / time.Second), nil
}

// ageText returns an age in seconds as parseAge parses it; "" for 0.
func ageText(seconds int64) string {
	const day = 24 * 60 * 60
	switch {
	case seconds == 0:
		return ""
	case seconds%day == 0:
		return strconv.FormatInt(seconds/day, 10) + "d"
	}
	text := (time.Duration(seconds) * time.Second).String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}

// poolDeletion is the form that deletes a pool.
type poolDeletion struct {
	api.Pool
}

func askDeletePool(v *visit) (any, error) {
	p, err := v.Pool(v, v.request.PathValue("id"))
	if err != nil {
		return nil, err
	}
	v.title = "Delete pool " + p.Name
	return poolDeletion{p}, nil
}

func doDeletePool(v *visit) (actionResult, error) {
	return actionResult{ResultPath: "/pools"}, v.DeletePool(v, v.request.PathValue("id"))
}
