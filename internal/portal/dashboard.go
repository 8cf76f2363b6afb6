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
	"github.com/buildyard/buildyard/internal/portal/chart"
	"github.com/buildyard/buildyard/internal/portal/eventtext"
	"github.com/buildyard/buildyard/internal/portal/format"
	"github.com/buildyard/buildyard/internal/portal/snippet"
)

func (p *portal) dashboardPages() []page {
	return []page{{
		pattern: "/{$}", templateName: "dashboard", title: "Dashboard", topics: Instances | Nodes | Events,
		buildView: loadDashboard,
	}}
}

// dashboard is the front page.
type dashboard struct {
	FirstRun    *firstRun // nil: the cloud has nodes, templates and instances
	Summary     string    // how the cloud is, in one sentence; "": there is trouble
	Tiles       []tile
	Ranges      []chip
	Lacking     []string // what could not be asked, and why
	Charts      []chart.Chart
	Series      *api.Series // nil: it could not be asked
	Rows        []api.SeriesPoint
	Failures    []failureCause
	FailedCount int // instances in Error
	FailedCut   int // causes are of so many newest ones; 0: of all
	// FailuresHiddenReason and ChangesHiddenReason are why those are not shown; "": they are.
	FailuresHiddenReason, ChangesHiddenReason string
	EventsDisabled                            bool // the controller keeps no events
	Groups                                    []groupLoad
	Outage                                    *problem // an outage that is urgent; nil: there is none
	OutageCount                               int
	Others                                    []problem // besides Outage
	Changes                                   []eventtext.Row
	CurlCommand                               string
}

// tile is a figure of the dashboard.
type tile struct {
	Name, Path  string
	Value, Unit string
	Details     []string
	Tone        string   // bad or warn; "": none
	UsedShare   *float64 // 0..1, shown as a bar; nil: none
	Spark       *chart.Spark
}

var rangeNames = []string{api.RangeHour, api.RangeQuarter, api.RangeDay, api.RangeWeek}

func loadDashboard(v *visit) (any, error) {
	d := &dashboard{CurlCommand: curlCommand(v, "GET", "/api/v1/stats", "")}
	steps := []struct {
		name string
		add  func(v *visit) error
	}{
		{"Charts", d.addSeries},
		{"Nodes, instances and queue", d.addStats},
		{"Registry storage", d.addRegistry},
		{"Capacity by group", d.addGroups},
		{"Failed instances", d.addFailures},
		{"Events", d.addChanges},
	}
	for _, s := range steps {
		if err := d.addLacking(s.name, s.add(v)); err != nil {
			return nil, err
		}
	}
	d.addFirstRun(v)
	return d, nil
}

// addLacking records what could not be read. Unauthenticated visitors are redirected to the login.
func (d *dashboard) addLacking(what string, err error) error {
	if err == nil || errors.Is(err, client.ErrUnauthenticated) {
		return err
	}
	d.Lacking = append(d.Lacking, what+": "+notShownReason(err))
	return nil
}

// addStats adds the figures of the instances, the queue and the nodes.
func (d *dashboard) addStats(v *visit) error {
	s, err := v.stats()
	if err != nil {
		return err
	}
	d.Tiles = append(d.Tiles, d.runningTile(&s), d.queueTile(&s), slotsTile(&s), d.startTile(&s), nodesTile(&s))
	status, statusErr := v.status()
	if lost := instancesOutOfContact(orNil(status, statusErr)); lost > 0 {
		d.Tiles[0].Details, d.Tiles[0].Tone = append(d.Tiles[0].Details, format.Count(lost)+" out of contact"), "bad"
	}
	trouble := troubleOf(orNil(status, statusErr), &s)
	d.setOutage(trouble)
	if d.Outage != nil {
		d.Outage.Outage.Check = "curl -sS -i " + snippet.Quoted(controllerURL(v)+"/livez")
	}
	if len(trouble) == 0 && statusErr == nil {
		d.Summary = fmt.Sprintf("%d of %s active. Registry and store respond.", s.Nodes[string(farm.NodeActive)],
			format.Plural(sumCounts(s.Nodes), "node is", "nodes are"))
	}
	return d.addLacking("Alarms and outages", statusErr)
}

// instancesOutOfContact returns how many instances are on nodes without contact.
func instancesOutOfContact(status *api.ControllerStatus) (n int) {
	if status == nil {
		return 0
	}
	for _, o := range status.Outages {
		if o.State == string(farm.NodeOffline) {
			n += o.Instances
		}
	}
	return n
}

// setOutage sets the first urgent outage of nodes without contact, and what needs an operator besides it.
func (d *dashboard) setOutage(trouble []problem) {
	shown := slices.IndexFunc(trouble, func(p problem) bool { return p.Urgent && p.Outage.isOffline() })
	if shown < 0 {
		return
	}
	for i := range trouble {
		if trouble[i].Outage != nil {
			d.OutageCount++
		}
		if i != shown {
			d.Others = append(d.Others, trouble[i])
		}
	}
	d.Outage = &trouble[shown]
}

func (d *dashboard) runningTile(s *api.ControllerStats) tile {
	starting := s.Instances[string(farm.Pulling)] + s.Instances[string(farm.Scheduling)] - s.QueueDepth
	t := tile{
		Name: "Running instances", Path: "/instances?q=state%3Astarted",
		Value: format.Count(s.Instances[string(farm.Started)]), Spark: d.spark("Running instances", runningOf),
	}
	t.Details = []string{fmt.Sprintf("%d starting", max(starting, 0))}
	if n := s.Instances[string(farm.Errored)]; n > 0 {
		t.Details = append(t.Details, fmt.Sprintf("%d failed", n))
	}
	return t
}

func (d *dashboard) queueTile(s *api.ControllerStats) tile {
	t := tile{
		Name: "Waiting in queue", Path: "/instances?q=phase%3Aqueued&sort=-age", Value: format.Count(s.QueueDepth),
		Spark: d.spark("Waiting in queue", queueOf),
	}
	if s.QueueDepth > 0 {
		t.Details, t.Tone = []string{"oldest " + format.Seconds(s.OldestWait)}, "warn"
	}
	return t
}

func slotsTile(s *api.ControllerStats) tile {
	t := tile{Name: "Slots used", Path: "/nodes", Value: "0", Unit: "of 0", Details: []string{"no schedulable nodes"}}
	if s.Slots.Capacity == 0 {
		return t
	}
	taken := usedSlots(&s.Slots)
	used := shareOf(taken, s.Slots.Capacity)
	t.Value, t.Unit, t.UsedShare = format.Percent(used), "%", &used
	t.Details = []string{fmt.Sprintf("%s of %s, %s free", format.Count(taken), format.Count(s.Slots.Capacity),
		format.Count(s.Slots.Free))}
	if held := heldText(&s.Slots); held != "" {
		t.Details = append(t.Details, "held: "+held)
	}
	return t
}

func (d *dashboard) startTile(s *api.ControllerStats) tile {
	t := tile{
		Name: "Time to start, p50", Path: "#numbers", Value: "-", Spark: d.spark("Time to start, p50", medianOf),
		Details: []string{fmt.Sprintf("%d started, %d failed in the last hour", s.StartsLastHour, s.FailuresLastHour)},
	}
	if d.Series == nil {
		return t
	}
	for _, p := range slices.Backward(d.Series.Points) {
		if p.StartP50 != nil && p.StartP95 != nil {
			t.Value, t.Unit, _ = strings.Cut(format.Seconds(*p.StartP50), " ")
			t.Details = append([]string{"p95 " + format.Seconds(*p.StartP95)}, t.Details...)
			break
		}
	}
	return t
}

func nodesTile(s *api.ControllerStats) tile {
	t := tile{
		Name: "Active nodes", Path: "/nodes", Value: format.Count(s.Nodes[string(farm.NodeActive)]),
		Unit: "of " + format.Count(sumCounts(s.Nodes)),
	}
	for _, state := range []farm.NodeState{farm.NodeOffline, farm.NodeUnhealthy} {
		if n := s.Nodes[string(state)]; n > 0 {
			t.Details = append(t.Details, fmt.Sprint(n, " ", state))
			t.Path, t.Tone = "/nodes?q=state%3Aunhealthy%2Coffline", "bad"
		}
	}
	return t
}

// spark draws a column of the series; nil where the series is not known.
func (d *dashboard) spark(label string, value func(p *api.SeriesPoint) *float64) *chart.Spark {
	if d.Series == nil {
		return nil
	}
	return chart.NewSpark(label, d.Series, value)
}

func (d *dashboard) addRegistry(v *visit) error {
	disk, err := v.RegistryDisk(v)
	if err != nil || disk.Total <= 0 {
		return err
	}
	used := float64(disk.Total-disk.Free) / float64(disk.Total)
	value, unit, _ := strings.Cut(bytesize.Format(disk.Total-disk.Free), " ")
	d.Tiles = append(d.Tiles, tile{
		Name: "Registry storage", Path: "/templates", Value: value, Unit: unit,
		Details: []string{"of " + bytesize.Format(disk.Total) + ", all files on its disk"}, UsedShare: &used,
	})
	return nil
}

// addSeries adds the charts.
func (d *dashboard) addSeries(v *visit) error {
	over := v.query.Get("range")
	if !slices.Contains(rangeNames, over) {
		over = api.RangeHour
	}
	for _, name := range rangeNames {
		d.Ranges = append(d.Ranges, chip{
			Name: name[:len(name)-1] + " " + name[len(name)-1:], Selected: name == over,
			Path: format.Path("/", "range", name),
		})
	}
	s, err := v.Series(v, over)
	if err != nil {
		return err
	}
	d.Series = &s
	d.Charts = []chart.Chart{
		chart.New("Running instances", "n", &s, chartColumn("running", runningOf)),
		chart.New("Time to start", "s", &s, chartColumn("p50", medianOf), chartColumn("p95", p95Of)),
		chart.New("Waiting in queue", "n", &s, chartColumn("mean", queueOf),
			chartColumn("most at a time", queuePeakOf)),
		chart.New("Pulled from registries", "B", &s, chartColumn("bytes", pulledOf)),
	}
	for _, p := range slices.Backward(s.Points) {
		d.Rows = append(d.Rows, p)
	}
	return nil
}

// failureCause is instances in Error that are alike.
type failureCause struct {
	key        string
	What, Path string
	Template   string
	Node       string // that all of them were on; "": they were on several
	Newest     time.Time
	Count      int
}

const (
	failuresRead = 200 // instances in Error that causes are made of
	fewCauses    = 5
	fewChanges   = 6
)

// addFailures adds the instances in Error by their template, the newest first.
func (d *dashboard) addFailures(v *visit) error {
	page, err := v.InstancePage(v, client.PageOptions{Filter: "state:error", Sort: "age", Limit: failuresRead})
	d.FailuresHiddenReason = notShownReason(err)
	if err != nil {
		return err
	}
	d.FailedCount = page.Total
	if page.Total > len(page.Instances) {
		d.FailedCut = len(page.Instances)
	}
	for _, item := range page.Instances {
		row := newInstanceRow(item, page)
		what := row.Note + "\x00" + row.TemplateID + row.Tag
		i := slices.IndexFunc(d.Failures, func(c failureCause) bool { return c.key == what })
		if i < 0 {
			i = len(d.Failures)
			d.Failures = append(d.Failures, failureCause{
				key: what, What: row.Note, Newest: row.Created, Path: "/instances/" + row.ID,
				Template: strings.TrimSpace(row.Template + " " + row.Tag), Node: row.Node,
			})
		}
		if d.Failures[i].Node != row.Node {
			d.Failures[i].Node = ""
		}
		d.Failures[i].Count++
		if d.Failures[i].Count == 2 {
			d.Failures[i].Path = format.Path("/instances", "q", alikeFilter(item.VM))
		}
	}
	d.Failures = d.Failures[:min(len(d.Failures), fewCauses)]
	return nil
}

// alikeFilter is the filter of the instances in Error with the same cause.
func alikeFilter(vm api.Instance) string {
	text := "state:error template:" + vm.VMID
	if vm.Tag != "" {
		text += " tag:" + format.QuotedFilterValue(vm.Tag)
	}
	if vm.Failure != nil {
		text += " failure:" + vm.Failure.Class
	}
	return text
}

// groupLoad is the capacity of a group and its use.
type groupLoad struct {
	ID, Name       string
	Nodes, Active  int
	Used, Capacity int // of the slots of all nodes
	Waiting        int
	UsedShare      string // for a meter
	Spark          *chart.Spark
}

// addGroups adds the present slots of the groups of nodes, counted as those of the cloud. A cloud without groups has
// none.
func (d *dashboard) addGroups(v *visit) error {
	s, err := v.GroupSparklines(v, api.RangeHour)
	if err != nil {
		return err
	}
	for _, one := range s.Series {
		g := groupLoad{ID: one.ID, Name: one.Name}
		if now := one.Now; now != nil {
			g.Used, g.Capacity = usedSlots(&now.Slots), now.Slots.Capacity
			g.Waiting, g.Nodes, g.Active = now.Pending, now.Nodes, now.ActiveNodes
		}
		g.UsedShare = strconv.FormatFloat(shareOf(g.Used, g.Capacity), 'f', 3, 64)
		g.Spark = chart.SparkOf("Slots used by "+one.Name, one.SlotsUsed)
		d.Groups = append(d.Groups, g)
	}
	return nil
}

// addChanges adds the newest events. Without the event log there are none.
func (d *dashboard) addChanges(v *visit) error {
	events, err := v.Events(v, client.EventQuery{Limit: firstEvents})
	if d.EventsDisabled = client.CodeOf(err) == client.ErrRefused; d.EventsDisabled {
		return nil
	}
	d.ChangesHiddenReason = notShownReason(err)
	groups := eventtext.Groups(events)
	d.Changes = newEventTable(v, groups[:min(fewChanges, len(groups))], false).Rows
	return err
}

// firstRun is the steps from an empty cloud to the first job, ticked by what the cloud has.
type firstRun struct {
	Join                                    joinView
	Import, Push, Start                     string
	HasNodes, HasTemplates, HasInstances    bool
	NodeCount, TemplateCount, InstanceCount string
	Current                                 int // number of the first step that is not done
	ControllerURL                           string
	LoginRequired                           bool
}

// hasStarted reports whether the cloud knows of an instance: one that exists, one of the history, or one that is
// counted in the usage of the last week, which outlives the controller.
func hasStarted(v *visit, s *api.ControllerStats) bool {
	if liveInstances(*s)+s.StartsLastHour > 0 {
		return true
	}
	if past, err := v.History(v, client.ListOptions{Limit: 1}); err == nil && len(past) > 0 {
		return true
	}
	report, err := v.UsageReport(v, api.ByGroup, api.RangeWeek)
	return err == nil && slices.ContainsFunc(report.Rows, func(r api.UsageRow) bool { return r.Starts > 0 })
}

// addFirstRun adds the first steps while the cloud lacks nodes, templates or instances.
func (d *dashboard) addFirstRun(v *visit) {
	stats, err := v.stats()
	if err != nil {
		return
	}
	nodes := sumCounts(stats.Nodes)
	templates, err := v.TemplatePage(v, client.PageOptions{Limit: 1})
	if err != nil {
		return
	}
	if rights := v.canDo().rights; templates.Total == 0 && rights != nil && !rights.Root {
		return // there may be templates that the visitor does not see
	}
	started := hasStarted(v, &stats)
	if nodes > 0 && templates.Total > 0 && started {
		return
	}
	f := &firstRun{
		Join: newJoinView(v), Import: "buildnode vm import disk.qcow2 --name " + exampleVM + " --cpu 2 --ram 4G",
		Push: pushCommand(v), HasNodes: nodes > 0, HasTemplates: templates.Total > 0, HasInstances: started,
		Start:         snippet.Command(&client.StartRequest{}, ""),
		ControllerURL: controllerURL(v), LoginRequired: v.loginRequired,
	}
	f.NodeCount, f.TemplateCount = strconv.Itoa(nodes), strconv.Itoa(templates.Total)
	if len(templates.Templates) > 0 {
		f.Start = snippet.Command(&client.StartRequest{}, templates.Templates[0].Name, v.caller().ClientFlags())
	}
	for i, done := range []bool{f.HasNodes, f.HasTemplates, f.HasInstances} {
		if !done {
			f.Current = i + 1
			break
		}
	}
	d.FirstRun = f
}
