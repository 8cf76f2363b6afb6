package controllerrest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/search"
)

// Limits of a search.
const (
	defaultSearchLimit = 8  // of a kind
	maxSearchLimit     = 50 // of a kind
	maxMatchText       = 200
	// searchRegistryTimeout bounds the time for the list of templates: a person types and waits.
	searchRegistryTimeout = 2 * time.Second
)

// searchRoutes are the routes with which a person finds something. Each shows what the lists would show to the caller.
func (s *server) searchRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /api/v1/search", Permission: rest.AnyCredential, Handle: s.search},
		{Pattern: "GET /api/v1/filter/complete", Permission: rest.AnyCredential, Handle: s.completeFilter},
	}
}

// searcher is one search.
type searcher struct {
	server *server
	query  search.Query
	limit  int
	seen   visibility
	fields []search.Field // of the record at hand; its memory is reused for the next one
	out    []rankedMatch
	result api.SearchResult
}

// rankedMatch is a match with its numeric rank.
type rankedMatch struct {
	rank search.Rank
	api.SearchMatch
}

// searchKinds are the kinds in the order of equally good matches, with the permission that their list needs.
var searchKinds = []struct {
	kind       string
	permission farm.Permission
	find       func(f *searcher, ctx context.Context)
}{
	{api.SearchInstance, "list_vms", (*searcher).findInstances},
	{api.SearchNode, "list_nodes", (*searcher).findNodes},
	{api.SearchTemplate, "registry_list", (*searcher).findTemplates},
	{api.SearchGroup, "get_groups", (*searcher).findGroups},
	{api.SearchKey, farm.PermRoot, (*searcher).findKeys},
}

// search returns what matches a text, of all kinds that the caller may list.
func (s *server) search(r *rest.Request) (any, error) {
	p := r.Params
	query, ok := search.ParseQuery(p.Text("q", search.MaxQueryBytes))
	if !ok {
		p.RecordError("q", "is required")
	}
	f := searcher{
		server: s, query: query, limit: p.Int("limit", defaultSearchLimit, 1, maxSearchLimit),
		seen:   s.visibilityOf(r).memoized(),
		result: api.SearchResult{Totals: map[string]int{}, Incomplete: []string{}, Matches: []api.SearchMatch{}},
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	caller := rest.CallerOf(r.Context())
	for _, kind := range searchKinds {
		if caller.RequirePermission(kind.permission) == nil && (kind.kind != api.SearchKey || s.listKeys != nil) {
			kind.find(&f, r.Context())
		}
	}
	slices.SortStableFunc(f.out, func(a, b rankedMatch) int { return cmp.Compare(a.rank, b.rank) })
	for _, one := range f.out {
		f.result.Matches = append(f.result.Matches, one.SearchMatch)
	}
	return f.result, nil
}

// memoized returns a visibility that decides about each node and template once.
func (v visibility) memoized() visibility {
	if !v.isRestricted {
		return v
	}
	memoize := func(decide func(string) bool) func(string) bool {
		known := map[string]bool{}
		return func(id string) bool {
			sees, ok := known[id]
			if !ok {
				sees = decide(id)
				known[id] = sees
			}
			return sees
		}
	}
	v.seesNode, v.seesTemplate = memoize(v.seesNode), memoize(v.seesTemplate)
	return v
}

// addBest adds the best records of a kind to the result.
func addBest[T any](
	f *searcher, kind string, best *search.Best[T], fieldsOf func(T), show func(T) api.SearchMatch,
) {
	f.result.Totals[kind] = best.Total()
	for _, found := range best.Ranked() {
		fieldsOf(found.Record)
		match, _ := f.query.Match(f.fields)
		field := f.fields[match.Field]
		row := show(found.Record)
		row.Kind, row.Rank = kind, found.Rank.String()
		row.Match = api.SearchField{Field: field.Name, Text: farm.Clip(field.Text, maxMatchText)}
		if field.Key != "" {
			row.Match.Field += "." + field.Key
		}
		f.out = append(f.out, rankedMatch{found.Rank, row})
	}
}

// setFields sets the fields of the next record; those without a text are left out.
func (f *searcher) setFields(fields ...search.Field) {
	f.fields = addFields(f.fields[:0], fields...)
}
