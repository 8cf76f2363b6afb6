package portal

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// logQuery is the query in the address of a log: which rows, and where in them the page is.
type logQuery struct {
	client.LogFilter
	service, file string // "": all; the ends of the last files
	text          string // the filter as it was typed
	filterError   error
	lines         int
	window        string // as in logRanges
	windowLength  time.Duration
	since         time.Time // only rows since then, for what follows the log; zero: all
	cursors       []string  // of the pages up to this one; none: the newest rows
	until         time.Time // decoded from the last cursor
	skip          int       // newest rows before until that another page has
	before        int64     // decoded from the last cursor of a file
	now           time.Time
}

const maxCursors = 50 // pages that Newer leads back to

// readLogQuery reads the address of a log.
func readLogQuery(v *visit) (q logQuery, err error) {
	q = logQuery{
		service: v.request.PathValue("service"), file: v.query.Get("file"), text: strings.TrimSpace(v.query.Get("q")),
		lines: defaultLogLines, window: v.query.Get("range"), now: v.now,
	}
	if n, err := strconv.Atoi(v.query.Get("lines")); err == nil && slices.Contains(lineChoices, n) {
		q.lines = n
	}
	for _, r := range logRanges {
		if r.value == q.window {
			q.windowLength = r.length
		}
	}
	q.readFilter()
	if q.service == "" {
		q.file = ""
	}
	if text := v.query.Get("since"); text != "" {
		if q.since, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return q, formError("since: must be a time such as 2026-01-02T15:04:05Z")
		}
	}
	if at := v.query.Get("at"); at != "" {
		q.cursors = strings.Split(at, ",")
		q.cursors = q.cursors[max(0, len(q.cursors)-maxCursors):]
		err = q.readCursor(q.cursors[len(q.cursors)-1])
	}
	return q, err
}

// readCursor decodes where a page begins: a byte of a file, or a time with rows to skip.
func (q *logQuery) readCursor(cursor string) error {
	invalid := formError("at: this address of a page is incomplete. Begin with the newest rows.")
	first, second, isTime := strings.Cut(cursor, "-")
	n, err := strconv.ParseInt(first, 10, 64)
	if err != nil || n <= 0 || n > 1<<50 || isTime == (q.file != "") {
		return invalid
	}
	if !isTime {
		q.before = n
		return nil
	}
	q.until = time.UnixMilli(n).UTC()
	if q.skip, err = strconv.Atoi(second); err != nil || q.skip < 0 || q.skip > maxLogRows {
		return invalid
	}
	return nil
}

// fieldTerm is a term about a field of a row.
var fieldTerm = regexp.MustCompile(`^([A-Za-z_][\w.-]*)[:=](.+)$`)

// readFilter reads the filter: level:LEVEL, service:NAME, FIELD:VALUE; the other words are text of the row. A term
// in quotes is text.
func (q *logQuery) readFilter() {
	var words []string
	for _, term := range splitUnquoted(q.text, ' ') {
		parts := fieldTerm.FindStringSubmatch(term)
		if parts == nil || strings.HasPrefix(parts[2], "//") { // an address is text
			words = append(words, strings.Trim(term, `"`))
			continue
		}
		value := strings.Trim(parts[2], `"`)
		switch {
		case parts[1] == "level":
			q.Level = strings.ToLower(value)
		case parts[1] == "service" && q.service == "":
			q.service = value
		case parts[1] == "service" && q.service != value:
			q.filterError = formError("service:" + value + ": this page shows only " + q.service +
				"; choose All services")
		case parts[1] != "service":
			q.Fields = append(q.Fields, parts[1]+"="+value)
		}
	}
	q.Text = strings.Join(words, " ")
}

// pathAt returns the address of another page of the same rows.
func (q logQuery) pathAt(cursors []string) string { return q.path(q.service, q.file, cursors) }

// pathOf returns the address of the same rows of another service.
func (q logQuery) pathOf(service string) string {
	q.text = strings.Join(slices.DeleteFunc(splitUnquoted(q.text, ' '), func(t string) bool {
		return strings.HasPrefix(t, "service:")
	}), " ")
	return q.path(service, "", nil)
}

func (q logQuery) path(service, file string, cursors []string) string {
	to := "/logs"
	if service != "" {
		to += "/" + url.PathEscape(service)
	}
	lines := ""
	if q.lines != defaultLogLines {
		lines = strconv.Itoa(q.lines)
	}
	return format.Path(to, "q", q.text, "range", q.window, "file", file, "lines", lines, "at",
		strings.Join(cursors, ","))
}
