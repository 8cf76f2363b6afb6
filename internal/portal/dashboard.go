package portal

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/farm"
)

func (p *portal) dashboardPages() []page {
	return []page{{pattern: "/{$}", templateName: "dashboard", title: "Dashboard", topics: Instances |
		Nodes, buildView: loadDashboard}}
}

// dashboard is the front page.
type dashboard struct {
	NoNodes     bool // without any node yet
	Join        joinView
	Tiles       []tile
	Ranges      []chip
	Lacking     []string // what could not be asked, and why
	Charts      []chart
	Series      *api.Series // nil: it could not be asked
	Rows        []seriesRow
	CurlCommand []string
}

// tile is a figure of the dashboard.
type tile struct {
	Name, Path  string
	Value, Unit string
	Detail      string
	Note        string
	UsedShare   *float64 // 0..1, shown as a bar; nil: none
}

// chart is a picture of some columns of the series.
type chart struct {
	Title, Lines string // Lines: NAME=COLUMN, with commas
	Unit         string // n, s or B
}

// seriesRow is one step of the series.
type seriesRow struct {
	Point   api.SeriesPoint
	Numbers string // the columns as numbers, with commas; nothing where none is known
}

var dashboardCharts = []chart{
	{"Running instances", "running=1", "n"},
	{"Queue", "waiting (mean)=2,most at a time=3", "n"},
	{"Time to start", "p50=5,p95=6", "s"},
	{"Pulled from registries", "bytes=7", "B"},
}

var rangeNames = []string{api.RangeHour, api.RangeQuarter, api.RangeDay, api.RangeWeek}

func loadDashboard(v *visit) (any, error) {
	d := &dashboard{CurlCommand: []string{curlCommand(v, "GET", "/api/v1/stats", "")}}
	nodes, err := v.NodePage(v, client.PageOptions{Limit: 1})
	if err := d.addLacking("Nodes", err); err != nil {
		return nil, err
	}
	if err == nil {
		d.addNodes(nodes)
		if d.NoNodes = nodes.Total == 0; d.NoNodes {
			d.Join = newJoinView(v)
		}
	}
	stats, err := v.stats()
	if err := d.addLacking("Instances and queue", err); err != nil {
		return nil, err
	}
	if err == nil {
		d.addStats(stats)
	}
	disk, err := v.RegistryDisk(v)
	if err := d.addLacking("Registry storage", err); err != nil {
		return nil, err
	}
	if err == nil {
		d.addRegistry(disk)
	}
	d.addLoad(nodes)
	return d, d.addSeries(v)
}

// addLacking records what could not be read. Unauthenticated visitors are redirected to the login.
func (d *dashboard) addLacking(what string, err error) error {
	if err == nil || errors.Is(err, client.ErrUnauthenticated) {
		return err
	}
	d.Lacking = append(d.Lacking, what+": "+notShownReason(err))
	return nil
}

// addNodes adds the figure of the nodes.
func (d *dashboard) addNodes(p api.NodePage) {
	t := tile{
		Name: "Active nodes", Path: "/nodes", Value: strconv.Itoa(p.States[string(farm.NodeActive)]),
		Unit: fmt.Sprint("of ", p.Total),
	}
	for _, state := range []farm.NodeState{farm.NodeUnhealthy, farm.NodeOffline} {
		if n := p.States[string(state)]; n > 0 {
			t.Note, t.Path = fmt.Sprint(n, " ", state), "/nodes?q=state:unhealthy,offline"
			break
		}
	}
	d.Tiles = append(d.Tiles, t)
}

// addLoad adds the load of the nodes' machines; without nodes it adds nothing.
func (d *dashboard) addLoad(p api.NodePage) {
	if p.States[string(farm.NodeActive)] == 0 {
		return
	}
	for _, u := range []struct {
		name  string
		share float64
	}{{"CPU (mean)", p.CPUUtil}, {"Memory (mean)", p.RAMUtil}} {
		d.Tiles = append(d.Tiles,
			tile{
				Name: u.name, Path: "/nodes", Value: percentText(u.share), Unit: "%", Detail: "of the active nodes",
				UsedShare: &u.share,
			})
	}
}

func (d *dashboard) addStats(s api.ControllerStats) {
	queue := tile{
		Name: "Queue", Path: "/instances?q=state:scheduling", Value: strconv.Itoa(s.QueueDepth),
		Unit: "waiting",
	}
	if s.QueueDepth > 0 {
		queue.Detail = "the first for " + secondsText(s.OldestWait)
	}
	capacity := tile{Name: "Capacity", Path: "/nodes", Value: "0", Unit: "slots", Note: "no schedulable nodes"}
	if s.Capacity > 0 {
		used := float64(s.CapacityUsed) / float64(s.Capacity)
		capacity = tile{
			Name: "Capacity", Path: "/nodes", Value: percentText(used), Unit: "%",
			Detail: fmt.Sprintf("%d of %d slots", s.CapacityUsed, s.Capacity), UsedShare: &used,
		}
	}
	d.Tiles = append(
		d.Tiles,
		tile{
			Name: "Running instances", Path: "/instances?q=state:started",
			Value: strconv.Itoa(s.Instances[string(farm.Started)]),
		},
		queue, capacity,
	)
}

// secondsText is a number of seconds as a time.
func secondsText(seconds float64) string {
	return durationText(time.Duration(seconds * float64(time.Second)))
}

func (d *dashboard) addRegistry(disk api.DiskInfo) {
	if disk.Total <= 0 {
		return
	}
	used := float64(disk.Total-disk.Free) / float64(disk.Total)
	value, unit, _ := strings.Cut(bytesize.Format(disk.Total-disk.Free), " ")
	d.Tiles = append(d.Tiles, tile{
		Name: "Registry storage", Path: "/templates", Value: value, Unit: unit,
		Detail: "of " +
			bytesize.Format(disk.Total), UsedShare: &used,
	})
}

// addSeries adds the charts.
func (d *dashboard) addSeries(v *visit) error {
	over := v.query.Get("range")
	if !slices.Contains(rangeNames, over) {
		over = api.RangeHour
	}
	for _, name := range rangeNames {
		d.Ranges = append(d.Ranges, chip{Name: name[:len(name)-1] + " " +
			name[len(name)-1:], Selected: name == over, Path: pathWithQuery("/", "range", name)})
	}
	d.CurlCommand = append(d.CurlCommand, curlCommand(v, "GET", "/api/v1/stats/series?range="+over, ""))
	s, err := v.Series(v, over)
	if err != nil {
		return d.addLacking("Charts", err)
	}
	d.Series, d.Charts = &s, dashboardCharts
	for _, point := range slices.Backward(s.Points) {
		d.Rows = append(d.Rows, seriesRow{point, seriesNumbers(point)})
	}
	return nil
}

// seriesNumbers are the numbers of a point, for what draws them.
func seriesNumbers(p api.SeriesPoint) string {
	return fmt.Sprintf("%d,%v,%v,%d,%d,%s,%s,%d", p.Time.Unix(), p.Running, p.Queue, p.QueuePeak, p.Starts,
		numberText(p.StartP50), numberText(p.StartP95), p.Pulled)
}

func numberText(f *float64) string {
	if f == nil {
		return ""
	}
	return strconv.FormatFloat(*f, 'g', -1, 64)
}
