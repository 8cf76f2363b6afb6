package portal

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// export is a list of the cloud as a file: of all rows that match a filter, not of one page.
type export struct {
	columns []string
	rows    func(v *visit, filter string) ([][]string, error)
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

// serveExport sends a list as CSV, or as JSON with format=json.
func (p *portal) serveExport(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("list")
	g := page{title: "Export", templateName: "fail"}
	list, ok := exports[name]
	if !ok {
		p.showError(w, r, g, &client.Error{Code: client.ErrNotFound, Message: "List " + name + " not found"})
		return
	}
	v, err := p.newVisit(r)
	var rows [][]string
	if err == nil {
		rows, err = list.rows(v, strings.TrimSpace(v.query.Get("q")))
	}
	if err != nil {
		p.showError(w, r, g, err)
		return
	}
	kind, write := "csv", writeCSV
	if v.query.Get("format") == "json" {
		kind, write = "json", writeJSON
	}
	h := w.Header()
	h.Set("Content-Type", map[string]string{"csv": "text/csv; charset=utf-8", "json": "application/json"}[kind])
	h.Set("Content-Disposition", "attachment; filename=\""+name+"."+kind+"\"")
	h.Set("Cache-Control", "no-store")
	_ = write(w, list.columns, rows) // the connection is lost
}

// writeCSV writes rows for spreadsheets. A value that a spreadsheet would take for a formula begins with an
// apostrophe.
func writeCSV(w io.Writer, columns []string, rows [][]string) error {
	out := csv.NewWriter(w)
	if err := out.Write(columns); err != nil {
		return err
	}
	for _, row := range rows {
		for i, value := range row {
			if value != "" && strings.ContainsRune("=+-@\t\r", rune(value[0])) {
				row[i] = "'" + value
			}
		}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func writeJSON(w io.Writer, columns []string, rows [][]string) error {
	all := make([]map[string]string, len(rows))
	for i, row := range rows {
		all[i] = map[string]string{}
		for j, column := range columns {
			all[i][column] = row[j]
		}
	}
	return json.NewEncoder(w).Encode(all)
}

// exportAll reads all parts of a list.
func exportAll(v *visit, filter string, read func(o client.PageOptions) (rows, total int, err error)) error {
	for skip := 0; ; {
		n, total, err := read(client.PageOptions{Filter: filter, Skip: skip, Limit: exportRows})
		if skip += n; err != nil || n == 0 || skip >= total {
			return err
		}
		if err := v.Err(); err != nil {
			return err
		}
	}
}

func exportInstances(v *visit, filter string) (rows [][]string, err error) {
	err = exportAll(v, filter, func(o client.PageOptions) (int, int, error) {
		o.Sort = "age"
		page, err := v.InstancePage(v, o)
		for _, item := range page.Instances {
			row := newInstanceRow(item, page)
			rows = append(rows, []string{
				row.ID, row.Name, item.VM.ExternalID, row.State, item.VM.Message, row.TemplateID, row.Template, row.Tag,
				row.NodeID, row.Node, item.VM.GroupID, row.IP, row.Owner, exportTime(row.Created),
				exportTime(item.VM.Started),
			})
		}
		return len(page.Instances), page.Total, err
	})
	return rows, err
}

func exportNodes(v *visit, filter string) (rows [][]string, err error) {
	err = exportAll(v, filter, func(o client.PageOptions) (int, int, error) {
		o.Sort = "name"
		page, err := v.NodePage(v, o)
		for _, n := range page.Nodes {
			var groups []string
			for _, g := range n.Groups {
				groups = append(groups, g.Name)
			}
			rows = append(rows, []string{
				n.NodeID, n.NodeName, n.State, nodeStateReason(n), strconv.Itoa(n.VMCount), strconv.Itoa(n.Capacity),
				numberText(n.CPUUtil), numberText(n.RAMUtil), strconv.FormatInt(n.FreeDisk, 10),
				strings.Join(groups, " "), n.IPAddress, n.AgentVersion, exportTime(n.LastUpdated),
			})
		}
		return len(page.Nodes), page.Total, err
	})
	return rows, err
}

func exportTemplates(v *visit, filter string) (rows [][]string, err error) {
	err = exportAll(v, filter, func(o client.PageOptions) (int, int, error) {
		o.Sort = "name"
		page, err := v.TemplatePage(v, o)
		for _, t := range page.Templates {
			rows = append(rows, []string{
				t.ID, t.Name, t.Arch, t.LatestTag, strconv.Itoa(t.VersionCount), strconv.FormatInt(t.Size, 10),
				strconv.Itoa(t.Nodes), exportTime(epochTime(t.LastPush)), exportTime(epochTime(t.LastPull)),
			})
		}
		return len(page.Templates), page.Total, err
	})
	return rows, err
}

// exportTime is a time in RFC 3339; "" for none.
func exportTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return format.Stamp(t)
}

func numberText(f float64) string { return strconv.FormatFloat(f, 'f', 3, 64) }
