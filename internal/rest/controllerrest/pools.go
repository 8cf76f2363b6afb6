package controllerrest

import (
	"math"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/pools"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/filter"
	"github.com/buildyard/buildyard/internal/rest"
)

// noGroup removes the group of a pool, as null does; "" means that it is not given.
const noGroup = "none"

// poolRoutes are the routes of warm pools.
func (s *server) poolRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /api/v1/pool", Permission: "list_vms", Handle: s.listPools},
		{Pattern: "POST /api/v1/pool", Permission: "change_config", Handle: s.withIdempotencyKey(s.createPool)},
		{Pattern: "PUT /api/v1/pool", Permission: "change_config", Handle: s.updatePool},
		{Pattern: "DELETE /api/v1/pool", Permission: "change_config", Handle: s.deletePool},
	}
}

// poolFields are the fields of pools that a filter may name.
var poolFields = filter.Table[api.Pool]{
	{Name: "id", IsDefault: true, Text: func(p api.Pool) string { return p.ID }},
	{Name: "name", IsDefault: true, Text: func(p api.Pool) string { return p.Name }},
	{Name: "template", IsDefault: true, Texts: func(p api.Pool) []string {
		return []string{p.TemplateID, p.TemplateName}
	}},
	{Name: "tag", Text: func(p api.Pool) string { return p.Tag }},
	{Name: "group", Text: func(p api.Pool) string {
		if p.GroupID == nil {
			return ""
		}
		return *p.GroupID
	}},
}

// poolToAPI converts a pool to its API form for a caller, without its standbys.
func poolToAPI(v pools.View, seen visibility) api.Pool {
	out := api.Pool{
		ID: v.ID, Name: v.Name, TemplateID: v.TemplateID, Tag: v.Tag, GroupID: orNull(v.GroupID),
		MinIdle: v.MinIdle, Schedule: make([]api.PoolWindow, len(v.Schedule)), TimeZone: v.TimeZone, MaxAge: v.MaxAge,
		Created: v.Created, Updated: v.Updated, Wanted: v.Wanted, Ready: v.Ready, Booting: v.Booting,
		Stats: api.PoolStats{
			Hits: v.Stats.Hits, EarlyHits: v.Stats.EarlyHits, Misses: v.Stats.Misses,
			SlotHours:    math.Round(v.Stats.SlotSeconds/36) / 100,
			SavedSeconds: math.Round(v.Stats.SavedSeconds*10) / 10,
			Booted:       v.Stats.Booted, Yielded: v.Stats.Yielded, Replaced: v.Stats.Replaced, Failed: v.Stats.Failed,
		},
	}
	for i, w := range v.Schedule {
		out.Schedule[i] = api.PoolWindow(w)
	}
	if seen.seesTemplate(v.TemplateID) {
		out.TemplateName = v.TemplateName
	}
	if !seen.isRestricted { // it may name a node
		out.Problem = v.Problem
	}
	return out
}

func standbyToAPI(inst *farm.Instance, seen visibility) api.Standby {
	out := api.Standby{
		InstanceID: inst.ID, State: string(inst.State), Created: inst.Created, Started: inst.Started,
	}
	if seen.seesNode(inst.NodeID) {
		out.NodeID, out.NodeName, out.Message = inst.NodeID, inst.NodeName, inst.Message
	}
	return out
}

// listPools returns the pools, or one of them with its standbys.
func (s *server) listPools(r *rest.Request) (any, error) {
	id := r.Params.String("id")
	fits := filterParam(r.Params, poolFields)
	if id == "" && r.URL.Query().Has("id") {
		r.Params.RecordError("id", "must not be empty")
	}
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	seen := s.visibilityOf(r).memoized()
	if id != "" {
		return s.showPool(r, id, seen)
	}
	all := s.controller.Pools.List()
	list := make([]api.Pool, len(all))
	for i, v := range all {
		list[i] = poolToAPI(v, seen)
	}
	return filterList(list, fits), nil
}

func (s *server) showPool(r *rest.Request, id string, seen visibility) (any, error) {
	v, err := s.controller.Pools.Get(r.Context(), id)
	if err != nil {
		return nil, err
	}
	out := poolToAPI(v, seen)
	for _, inst := range v.Standbys {
		out.Standbys = append(out.Standbys, standbyToAPI(inst, seen))
	}
	return out, nil
}

func (s *server) createPool(r *rest.Request) (any, error) {
	for _, name := range []string{"name", "template_id"} {
		if !r.Params.Has(name) {
			r.Params.RecordError(name, "is required")
		}
	}
	edit := poolEdit(r.Params)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	p := farm.Pool{MinIdle: 1}
	edit(&p)
	seen := s.visibilityOf(r)
	answer := func(p *farm.Pool) any { return poolToAPI(s.controller.Pools.View(p), seen) }
	made, err := s.controller.Pools.Create(r.Context(), p, answer)
	if err != nil {
		return nil, err
	}
	rest.AuditSubject(r.Request, made.ID)
	return answer(made), nil
}

func (s *server) updatePool(r *rest.Request) (any, error) {
	id := r.Params.Required("id")
	edit := poolEdit(r.Params)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return nil, s.controller.Pools.Update(r.Context(), id, edit)
}

func (s *server) deletePool(r *rest.Request) (any, error) {
	id := r.Params.Required("id")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return nil, s.controller.Pools.Delete(r.Context(), id)
}

// poolEdit reads the changes of a pool.
func poolEdit(p *rest.Params) func(*farm.Pool) {
	var edits []func(*farm.Pool)
	add := func(edit func(*farm.Pool)) { edits = append(edits, edit) }
	if p.Has("name") {
		name := strings.TrimSpace(p.Text("name", maxName))
		if name == "" {
			p.RecordError("name", "must not be empty")
		}
		add(func(to *farm.Pool) { to.Name = name })
	}
	if p.Has("template_id") {
		id := p.Text("template_id", maxName)
		add(func(to *farm.Pool) { to.TemplateID = strings.ToLower(id) })
	}
	if p.Has("tag") || p.IsNull("tag") {
		tag := strings.TrimSpace(p.Text("tag", maxTag))
		add(func(to *farm.Pool) { to.Tag = tag })
	}
	if p.Has("group_id") || p.IsNull("group_id") {
		id := p.Text("group_id", maxName)
		if id == noGroup {
			id = ""
		}
		add(func(to *farm.Pool) { to.GroupID = id })
	}
	if p.Has("min_idle") {
		count := p.Int("min_idle", 0, 0, farm.MaxPoolIdle)
		add(func(to *farm.Pool) { to.MinIdle = count })
	}
	if p.Has("schedule") || p.IsNull("schedule") {
		schedule := scheduleParam(p)
		add(func(to *farm.Pool) { to.Schedule = schedule })
	}
	if p.Has("time_zone") || p.IsNull("time_zone") {
		zone := strings.TrimSpace(p.Text("time_zone", maxTimeZone))
		add(func(to *farm.Pool) { to.TimeZone = zone })
	}
	if p.Has("max_age") || p.IsNull("max_age") {
		age := p.Duration("max_age", farm.MaxPoolAge)
		if age != 0 && age < farm.MinPoolAge {
			p.RecordError("max_age", "must be 0 or at least %s", farm.MinPoolAge)
		}
		add(func(to *farm.Pool) { to.MaxAge = int64(age / time.Second) })
	}
	return func(to *farm.Pool) {
		for _, edit := range edits {
			edit(to)
		}
	}
}

// maxTimeZone bounds the name of a time zone, in bytes.
const maxTimeZone = 64

// scheduleParam reads the windows of a pool.
func scheduleParam(p *rest.Params) []farm.PoolWindow {
	rows := p.Objects("schedule")
	if len(rows) > farm.MaxPoolWindows {
		p.RecordError("schedule", "must have at most %d windows", farm.MaxPoolWindows)
		return nil
	}
	list := make([]farm.PoolWindow, len(rows))
	for i, row := range rows {
		w := farm.PoolWindow{
			Days: row.Strings("days"), From: row.String("from"), To: row.String("to"),
			MinIdle: row.Int("min_idle", -1, 0, farm.MaxPoolIdle),
		}
		err := row.Err()
		if err == nil {
			err = w.Check()
		}
		if err != nil {
			p.RecordError("schedule", "window %d: %s", i+1, strings.TrimPrefix(err.Error(), "schedule: "))
		}
		list[i] = w
	}
	return list
}
