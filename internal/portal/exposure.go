package portal

import (
	"cmp"
	"net/url"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// exposureRows is how many instances the page lists.
const exposureRows = 200

// exposureView is the page of the instances that ran on a node while vulnerabilities were known of it.
type exposureView struct {
	NodeID, NodeName string
	Text             string // the IDs; "": all
	FirstKnown       time.Time
	Findings, Total  int
	Truncated        bool
	Instances        []exposedRow
	CurlCommand      string
}

// exposedRow is an instance.
type exposedRow struct {
	api.ExposedInstance
	Ended time.Time // zero: not yet
}

func showExposure(v *visit) (any, error) {
	id := v.request.PathValue("id")
	n, err := v.Node(v, id)
	if err != nil {
		return nil, err
	}
	out := exposureView{NodeID: id, NodeName: n.NodeName, Text: strings.TrimSpace(v.query.Get("q"))}
	ids := strings.FieldsFunc(out.Text, func(r rune) bool { return r == ',' || r == ' ' })
	got, err := v.NodeExposure(v, id, ids...)
	if err != nil {
		return nil, err
	}
	v.title = "Exposed instances of " + n.NodeName
	out.Findings, out.Total, out.Truncated = got.Findings, len(got.Instances)+got.LeftOut, got.Truncated
	if got.FirstKnown != nil {
		out.FirstKnown = *got.FirstKnown
	}
	for _, i := range got.Instances[:min(len(got.Instances), exposureRows)] {
		row := exposedRow{ExposedInstance: i}
		if row.Name = cmp.Or(i.Name, format.ShortID(i.InstanceID)); i.Finished != nil {
			row.Ended = *i.Finished
		}
		out.Instances = append(out.Instances, row)
	}
	q := url.Values{"id": {id}}
	if len(ids) > 0 {
		q.Set("vulnerability", strings.Join(ids, ","))
	}
	out.CurlCommand = curlCommand(v, "GET", api.PathNodeScanInstances+"?"+q.Encode(), "")
	return out, nil
}
