package portal

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// export is a list of the cloud as a file: of all rows that match a filter, not of one page.
type export struct {
	columns []string
	// rows passes each row to send: a value of each column, a string or a json.Number.
	rows func(v *visit, filter string, send func(row ...any) error) error
}

// exports are the lists that can be exported, by the name of their page.
var exports = map[string]export{
	"instances": {
		[]string{
			"id", "name", "external_id", "state", "message", "template_id", "template", "tag", "node_id", "node",
			"group_id", "ip", "owner", "created", "started",
		}, exportInstances,
	},
	"nodes": {
		[]string{
			"id", "name", "state", "reason", "vms", "capacity", "cpu_util", "ram_util", "free_disk_bytes", "groups",
			"address", "agent", "last_contact",
		}, exportNodes,
	},
	"templates": {
		[]string{"id", "name", "arch", "latest_tag", "tags", "size_bytes", "nodes", "pushed", "pulled"},
		exportTemplates,
	},
}

// exportRows is how many rows are read at a time.
const exportRows = 1000

// serveExport sends a list as CSV, or as JSON with format=json. Rows are sent as they are read. A list that cannot be
// read to its end breaks the connection, so that no part of it passes for the whole.
func (p *portal) serveExport(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("list")
	g := page{title: "Export", templateName: "fail"}
	list, ok := exports[name]
	if !ok {
		p.showError(w, r, g, &client.Error{Code: client.ErrNotFound, Message: "List " + name + " not found"})
		return
	}
	file := &exportFile{response: w, name: name, columns: list.columns}
	v, err := p.newVisit(r)
	if err == nil {
		file.isJSON = v.query.Get("format") == "json"
		err = list.rows(v, strings.TrimSpace(v.query.Get("q")), file.writeRow)
	}
	if err != nil && file.to == nil {
		p.showError(w, r, g, err)
		return
	}
	if err == nil {
		err = file.end()
	}
	if err != nil {
		p.opts.Logger.InfoContext(r.Context(), "export interrupted", "list", name, "rows", file.rows, "error", err)
		panic(http.ErrAbortHandler)
	}
}

// exportFile is a list that is sent row by row.
type exportFile struct {
	response http.ResponseWriter
	name     string
	columns  []string
	isJSON   bool
	to       *bufio.Writer // nil: nothing was sent yet
	csv      *csv.Writer   // nil for JSON
	rows     int           // that were written
}

// begin sends what is before the rows.
func (f *exportFile) begin() error {
	kind, contentType := "csv", "text/csv; charset=utf-8"
	if f.isJSON {
		kind, contentType = "json", "application/json"
	}
	h := f.response.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Disposition", "attachment; filename=\""+f.name+"."+kind+"\"")
	h.Set("Cache-Control", "no-store")
	f.to = bufio.NewWriterSize(f.response, 16<<10)
	if f.isJSON {
		return f.to.WriteByte('[')
	}
	f.csv = csv.NewWriter(f.to)
	return f.csv.Write(f.columns)
}

// writeRow sends a row. As many as are read at a time are on their way before the next ones are read.
func (f *exportFile) writeRow(row ...any) error {
	if f.to == nil {
		if err := f.begin(); err != nil {
			return err
		}
	}
	f.rows++
	if err := f.writeValues(row); err != nil || f.rows%exportRows > 0 {
		return err
	}
	if err := f.flush(); err != nil {
		return err
	}
	return http.NewResponseController(f.response).Flush()
}

// writeValues writes a row. In CSV, a text that a spreadsheet would take for a formula begins with an apostrophe.
func (f *exportFile) writeValues(row []any) error {
	if f.isJSON {
		return f.writeObject(row)
	}
	texts := make([]string, len(row))
	for i, value := range row {
		texts[i] = fmt.Sprint(value)
		_, isText := value.(string)
		if isText && isFormula(texts[i]) {
			texts[i] = "'" + texts[i]
		}
	}
	return f.csv.Write(texts)
}

// isFormula reports whether a spreadsheet may take a text for a formula: some of them skip blanks, and some read
// full-width characters as the usual ones.
func isFormula(text string) bool {
	if strings.HasPrefix(text, "\t") || strings.HasPrefix(text, "\r") {
		return true
	}
	first, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(text, unicode.IsSpace))
	return strings.ContainsRune("=+-@\uff1d\uff0b\uff0d\uff20", first)
}

// writeObject sends a row as an object, with its members in the order of the columns.
func (f *exportFile) writeObject(row []any) error {
	before := byte('{')
	if f.rows > 1 {
		_ = f.to.WriteByte(',') // the writer keeps its first error
	}
	_ = f.to.WriteByte('\n')
	for i, value := range row {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		_ = f.to.WriteByte(before)
		_, _ = f.to.WriteString(strconv.Quote(f.columns[i]) + ":")
		_, _ = f.to.Write(text)
		before = ','
	}
	return f.to.WriteByte('}')
}

// end sends what is after the rows.
func (f *exportFile) end() error {
	if f.to == nil { // no row matches
		if err := f.begin(); err != nil {
			return err
		}
	}
	if f.isJSON {
		_, _ = f.to.WriteString("\n]\n")
	}
	return f.flush()
}

// flush sends what is buffered to the response.
func (f *exportFile) flush() error {
	if f.csv != nil {
		f.csv.Flush()
	}
	return f.to.Flush()
}

// exportPart is a part of a list in the order of the IDs.
type exportPart struct {
	ids   []string
	total int
	row   func(i int) []any
}

// exportOverlap is how many rows before the next one are read again at first.
const exportOverlap = 50

// exportAll sends all rows of a list by their IDs. Rows that end move the others forward: each part begins with a row
// that was sent, so that none is left out, and those that were sent are not sent again.
func exportAll(
	v *visit, filter string, send func(row ...any) error, read func(o client.PageOptions) (exportPart, error),
) error {
	last, end := "", 0 // the last row that was sent, and the place behind it
	for {
		part, skip, err := readOverlapping(v, filter, last, end, read)
		if err != nil {
			return err
		}
		first, _ := slices.BinarySearch(part.ids, last+"\x00")
		for i := first; i < len(part.ids); i++ {
			if err := send(part.row(i)...); err != nil {
				return err
			}
			last = part.ids[i]
		}
		if end = skip + len(part.ids); end >= part.total {
			return nil
		}
	}
}

// readOverlapping reads the part of a list that has the row which follows last, the row before the place end. skip is
// the place where it begins.
func readOverlapping(
	v *visit, filter, last string, end int, read func(o client.PageOptions) (exportPart, error),
) (part exportPart, skip int, err error) {
	for back := exportOverlap; ; back *= 4 {
		skip = max(0, end-back)
		part, err = read(client.PageOptions{Filter: filter, Sort: "id", Skip: skip, Limit: exportRows})
		if err = cmp.Or(err, v.Err()); err != nil || skip == 0 || len(part.ids) > 0 && part.ids[0] <= last {
			return part, skip, err
		}
	}
}

func exportInstances(v *visit, filter string, send func(row ...any) error) error {
	return exportAll(v, filter, send, func(o client.PageOptions) (part exportPart, err error) {
		page, err := v.InstancePage(v, o)
		for _, item := range page.Instances {
			part.ids = append(part.ids, item.InstanceID)
		}
		part.total = page.Total
		part.row = func(i int) []any {
			item := page.Instances[i]
			row := newInstanceRow(item, page)
			return []any{
				row.ID, row.Name, item.VM.ExternalID, row.State, item.VM.Message, row.TemplateID, row.Template, row.Tag,
				row.NodeID, row.Node, item.VM.GroupID, row.IP, row.Owner, exportTime(row.Created),
				exportTime(item.VM.Started),
			}
		}
		return part, err
	})
}

func exportNodes(v *visit, filter string, send func(row ...any) error) error {
	return exportAll(v, filter, send, func(o client.PageOptions) (part exportPart, err error) {
		page, err := v.NodePage(v, o)
		for _, n := range page.Nodes {
			part.ids = append(part.ids, n.NodeID)
		}
		part.total = page.Total
		part.row = func(i int) []any {
			n := page.Nodes[i]
			var groups []string
			for _, g := range n.Groups {
				groups = append(groups, g.Name)
			}
			return []any{
				n.NodeID, n.NodeName, n.State, nodeStateReason(n), integer(n.VMCount), integer(n.Capacity),
				fraction(n.CPUUtil), fraction(n.RAMUtil), integer(n.FreeDisk), strings.Join(groups, " "), n.IPAddress,
				n.AgentVersion, exportTime(n.LastUpdated),
			}
		}
		return part, err
	})
}

func exportTemplates(v *visit, filter string, send func(row ...any) error) error {
	return exportAll(v, filter, send, func(o client.PageOptions) (part exportPart, err error) {
		page, err := v.TemplatePage(v, o)
		for _, t := range page.Templates {
			part.ids = append(part.ids, t.ID)
		}
		part.total = page.Total
		part.row = func(i int) []any {
			t := page.Templates[i]
			return []any{
				t.ID, t.Name, t.Arch, t.LatestTag, integer(t.VersionCount), integer(t.Size), integer(t.Nodes),
				exportTime(epochTime(t.LastPush)), exportTime(epochTime(t.LastPull)),
			}
		}
		return part, err
	})
}

// exportTime is a time in RFC 3339; "" for none.
func exportTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return format.Stamp(t)
}

func integer[T int | int64](n T) json.Number { return json.Number(strconv.FormatInt(int64(n), 10)) }

func fraction(f float64) json.Number { return json.Number(strconv.FormatFloat(f, 'f', 3, 64)) }
