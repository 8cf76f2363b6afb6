package portal

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/portal/format"
)

func (p *portal) logPages() []page {
	return []page{
		{pattern: "/logs", templateName: "entries", title: "Logs", buildView: showLogs},
		{pattern: "/logs/{service}", templateName: "entries", title: "Log", buildView: showLogs},
		{pattern: "/logs/vm", templateName: "vmlogs", title: "Logs of failed VMs", buildView: listVMLogs},
		{pattern: "/logs/vm/{id}", templateName: "vmlog", title: "Logs of an instance", buildView: showVMLogs},
	}
}

// logView is the page of the log of one service or of all, the newest row first.
type logView struct {
	Service             string // "": all but the events
	Services            []api.LogService
	File                string // that is read; "": the ends of the last files
	Files               []api.LogFile
	Filter, FilterError string
	Lines               int // rows on the page
	LineChoices         []int
	Levels, Sources     []chip
	Ranges              []chip
	Range               string
	Rows                []logRow
	Partial             []string // services with older rows that only their files show
	Newer, Older        string
	FollowPath          string // of the newest rows; "": the page does not show them
	Now                 string // for the first request of newer rows
	Full                bool   // there may be more rows since the requested time than the page has
	Scope               string // whose rows are shown
	View, ArchivePath   string // of the whole text
	CurlCommand         string
	HasFailed           bool   // there are logs of failed VMs
	FailedHiddenReason  string // why it is not known; "": it is
}

const (
	eventService      = "event" // whose rows are the events
	defaultLogLines   = 200
	maxMergedServices = 8 // that are shown together
)

var lineChoices = []int{50, defaultLogLines, 500, 1000}

// logRanges are the time windows to choose from.
var logRanges = []struct {
	name, value string
	length      time.Duration
}{
	{"All", "", 0},
	{"15 m", "15m", 15 * time.Minute},
	{"1 h", "1h", time.Hour},
	{"24 h", "24h", 24 * time.Hour},
	{"7 d", "7d", 7 * 24 * time.Hour},
}

func showLogs(v *visit) (any, error) {
	q, err := readLogQuery(v)
	if err != nil {
		return nil, err
	}
	v.rowsOnly = !q.since.IsZero() && isRefresh(v.request)
	var services []api.LogService
	if !v.rowsOnly || q.service == "" {
		if services, err = v.Logs().Services(v); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(services, func(a, b api.LogService) int { return strings.Compare(a.Service, b.Service) })
	out := logView{
		Service: q.service, Services: services, File: q.file, Filter: q.text, Lines: q.lines, LineChoices: lineChoices,
		Range: q.window, Now: v.now.UTC().Format(time.RFC3339Nano),
	}
	if v.rowsOnly {
		if err = out.readRows(v, q); filterError(err, q.text) != "" {
			err = nil // the page already states it
		}
		return out, err
	}
	if q.service != "" {
		v.title = "Log of " + q.service
		if out.Files, err = v.Logs().Files(v, q.service); err != nil {
			return nil, err
		}
		slices.Reverse(out.Files) // the newest first
	}
	failed, err := v.Files(v, "logs")
	if out.HasFailed = len(failed) > 0; err != nil && client.CodeOf(err) != client.ErrNotFound {
		out.FailedHiddenReason = notShownReason(err)
	}
	if err := out.readRows(v, q); err != nil {
		if out.FilterError = filterError(err, q.text); out.FilterError == "" {
			return nil, err
		}
	}
	out.fillLinks(v, q)
	return out, nil
}

// readRows reads the rows of the page and where the older ones are.
func (out *logView) readRows(v *visit, q logQuery) error {
	if q.filterError != nil {
		return q.filterError
	}
	from := []string{q.service}
	if q.service == "" {
		from = mergedServices(out.Services)
		out.Scope = scopeText(out.Services)
	}
	parts, err := readServices(v, q, from)
	if err != nil {
		return err
	}
	entries, next := q.newestEntries(parts)
	if !q.since.IsZero() {
		next = ""
	}
	out.Rows, out.Full = newLogRows(v.now, entries), !q.since.IsZero() && len(entries) >= q.lines
	for i, p := range parts {
		if p.File == "" && !p.Complete && len(p.Entries) < q.limit() {
			out.Partial = append(out.Partial, from[i])
		}
	}
	if next != "" {
		out.Older = q.pathAt(append(slices.Clone(q.cursors), next))
	}
	return nil
}

// mergedServices returns the services that are shown together: those that wrote last, without the events.
func mergedServices(all []api.LogService) (names []string) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b api.LogService) int { return b.LastWrite.Compare(a.LastWrite) })
	for _, s := range all {
		if s.Service != eventService && len(names) < maxMergedServices {
			names = append(names, s.Service)
		}
	}
	slices.Sort(names) // one order on every page
	return names
}

// scopeText names the services that are shown together.
func scopeText(all []api.LogService) string {
	others := slices.DeleteFunc(slices.Clone(all), func(s api.LogService) bool { return s.Service == eventService })
	if len(others) > maxMergedServices {
		return fmt.Sprintf("of the %d services that wrote last", maxMergedServices)
	}
	return "of all services"
}

// readServices reads the rows of several services at the same time.
func readServices(v *visit, q logQuery, services []string) ([]api.LogEntries, error) {
	parts, errs := make([]api.LogEntries, len(services)), make([]error, len(services))
	var all sync.WaitGroup
	for i, service := range services {
		all.Go(func() { parts[i], errs[i] = v.Logs().Entries(v, q.apiQuery(service)) })
	}
	all.Wait()
	return parts, cmp.Or(errs...)
}

// fillLinks fills in where the page leads.
func (out *logView) fillLinks(v *visit, q logQuery) {
	if n := len(q.cursors); n > 0 {
		out.Newer = q.pathAt(q.cursors[:n-1])
	} else if q.file == "" || len(out.Files) > 0 && q.file == newestFile(out.Files) {
		out.FollowPath = q.pathAt(nil)
	}
	for _, r := range logRanges {
		in := q
		in.window = r.value
		out.Ranges = append(out.Ranges, chip{Name: r.name, Path: in.pathAt(nil), Selected: r.value == q.window})
	}
	for _, l := range logLevels {
		in := q
		in.text = q.textWithLevel(l.value)
		out.Levels = append(out.Levels, chip{Name: l.name, Path: in.pathAt(nil), Selected: l.value == q.Level})
	}
	out.Sources = []chip{{Name: "All services", Path: q.pathOf(""), Selected: q.service == ""}}
	for _, s := range out.Services {
		out.Sources = append(out.Sources,
			chip{Name: s.Service, Path: q.pathOf(s.Service), Selected: s.Service == q.service})
	}
	service := cmp.Or(q.service, "controller")
	if q.service != "" {
		out.View = format.Path("/api/v1/log/view", "service", service, "file",
			cmp.Or(q.file, newestFile(out.Files)))
		out.ArchivePath = format.Path("/api/v1/log/archive", "service", service)
	}
	out.CurlCommand = curlCommand(v, "GET", q.apiPath(service), "")
}

// apiPath returns the address of the page's rows of one service in the API.
func (q logQuery) apiPath(service string) string {
	asked := q.apiQuery(service)
	values := url.Values{"service": {service}, "limit": {strconv.Itoa(q.lines)}}
	if len(q.Fields) > 0 {
		values["field"] = q.Fields
	}
	for name, text := range map[string]string{
		"file": q.file, "level": q.Level, "q": q.Text, "since": timeParameter(asked.Since),
		"until": timeParameter(asked.Until),
	} {
		if text != "" {
			values.Set(name, text)
		}
	}
	if q.before > 0 {
		values.Set("before", strconv.FormatInt(q.before, 10))
	}
	return "/api/v1/log/entries?" + values.Encode()
}

// timeParameter is a time as the API takes it; "" for none.
func timeParameter(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339Nano)
}

// nodeService is the service whose logs are those of the nodes.
const nodeService = "node"

// newestFile returns the name of the file that is written to; "" without files.
func newestFile(files []api.LogFile) string {
	if len(files) == 0 {
		return ""
	}
	return slices.MaxFunc(files, func(a, b api.LogFile) int { return a.LastWrite.Compare(b.LastWrite) }).Name
}

// newestEntries returns the rows of the page from the rows of services, the newest first, and the cursor of the
// older ones, "" where there are none.
func (q logQuery) newestEntries(parts []api.LogEntries) (entries []api.LogEntry, next string) {
	complete := true
	for _, p := range parts {
		entries = append(entries, p.Entries...)
		complete = complete && p.Complete
		if p.File != "" && p.Before > 0 {
			next = strconv.FormatInt(p.Before, 10)
		}
	}
	slices.SortStableFunc(entries, func(a, b api.LogEntry) int { return a.Time.Compare(b.Time) })
	slices.Reverse(entries)
	entries = entries[min(q.skip, len(entries)):]
	if q.file != "" {
		return entries, next
	}
	more := len(entries) > q.lines
	entries = entries[:min(q.lines, len(entries))]
	if len(entries) == 0 || entries[len(entries)-1].Time.IsZero() || !more && (complete || len(entries) < q.lines) {
		return entries, ""
	}
	return entries, q.cursorAfter(entries)
}

// cursorAfter returns the cursor of the rows that are older than those of the page. Rows of one millisecond may be
// on both sides, so that it also has how many of them to skip.
func (q logQuery) cursorAfter(entries []api.LogEntry) string {
	last := entries[len(entries)-1].Time.Truncate(time.Millisecond)
	same := 0
	for _, e := range slices.Backward(entries) {
		if e.Time.Before(last.Add(time.Millisecond)) {
			same++
		}
	}
	until := last.Add(time.Millisecond)
	if until.Equal(q.until) {
		same += q.skip
	}
	if same+q.lines > maxLogRows { // more than the API returns at a time
		until, same = last, 0
	}
	return fmt.Sprintf("%d-%d", until.UnixMilli(), same)
}

// textWithLevel returns the filter with another level.
func (q logQuery) textWithLevel(level string) string {
	terms := slices.DeleteFunc(splitUnquoted(q.text, ' '), func(t string) bool {
		return strings.HasPrefix(t, "level:")
	})
	if level != "" {
		terms = append([]string{"level:" + level}, terms...)
	}
	return strings.Join(terms, " ")
}

// logLevels are the levels to choose from.
var logLevels = []struct{ name, value string }{
	{"All levels", ""}, {"Info and above", api.LogInfo}, {"Warnings and errors", api.LogWarn}, {"Errors", api.LogError},
}

const maxLogRows = 1000 // that the API returns at a time

// apiQuery returns the query of the API for one service.
func (q logQuery) apiQuery(service string) client.LogQuery {
	out := client.LogQuery{
		LogFilter: q.LogFilter, Service: service, File: q.file, Limit: q.limit(), Before: q.before,
		Since: q.since, Until: q.until,
	}
	if q.since.IsZero() && q.windowLength > 0 {
		out.Since = q.now.Add(-q.windowLength)
	}
	return out
}

// limit returns how many rows of each service are read: one more than the page shows, to know whether there are
// older ones.
func (q logQuery) limit() int {
	if q.file != "" {
		return q.lines
	}
	return min(maxLogRows, q.lines+q.skip+1)
}
