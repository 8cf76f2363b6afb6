package cloud

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
)

// permissionGroup is the flag of commands that act for a permission group.
const (
	permissionGroup = "permission-group"
	forGroup        = "permission group of the request, where resource rights are enforced"
)

// startOptions are the options of instance start.
type startOptions struct {
	Command
	waitOptions
	client.StartRequest
	versionSelector
	node            string
	actingGroup     string
	ttl             time.Duration
	metadata        map[string]string
	scriptFile      string // a file
	scriptOnBoot    bool
	onScriptFailure string
	ports           []string
	diskSize        string
	memory          string
}

func instanceStart(s cli.Streams) *cobra.Command {
	o := startOptions{Command: Command{Streams: s}}
	cmd := o.Add(&cobra.Command{
		Use: "start TEMPLATE[:TAG]", Short: "Start instances of a template", Args: cobra.ExactArgs(1),
		Long: `start creates instances of a template (ID, unique prefix of an ID, or name) and prints their IDs. With
--wait it waits until they are Started, and fails if one of them fails.

The script runs in the VM with "bash"; - reads it from standard input. With --monitor a failed
script puts the instance into Error, and --on-failure selects the action on its VM.`,
		Example: `  buildyard instance start debian
  buildyard instance start debian:v12 --count 3 --external-id job-17 --ttl 2h --wait
  buildyard instance start debian --script setup.sh --monitor --script-timeout 300 --wait
  buildyard instance start debian --port web:8080 --port ssh:22:10022 --vcpu 4 --vram 8192`,
		ValidArgsFunction: completeVersions,
	}, func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) })
	o.addFlags(cmd)
	o.addWaitFlags(cmd, "until they are Started")
	return cmd
}

func (o *startOptions) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	o.versionSelector.add(cmd)
	fs.IntVarP(&o.Count, "count", "n", 1, "number of instances")
	fs.StringVar(&o.Name, "name", "", "name of the instances")
	fs.StringVar(&o.ExternalID, "external-id", "", "external ID: the ID in another system")
	fs.StringVar(&o.node, "node", "", "node to start on")
	fs.StringVar(&o.actingGroup, "group", "", "node group to start on")
	fs.StringVar(&o.Group, permissionGroup, "", forGroup)
	fs.IntVar(&o.Priority, "priority", 0, "priority from 1 to 10000, lower is more urgent (default 1000)")
	fs.DurationVar(&o.ttl, "ttl", 0, "time to live; 0: unlimited")
	fs.StringToStringVarP(&o.metadata, "metadata", "m", nil, "metadata as key=value; repeatable")
	fs.StringVar(&o.scriptFile, "script", "", "script file to run in the VM after its start; - reads standard input")
	fs.BoolVar(&o.scriptOnBoot, "script-on-boot", false, "run the script at boot, without waiting for the network")
	fs.BoolVar(&o.ScriptMonitoring, "monitor", false,
		"record the result of the script; if it fails, the instance goes to Error")
	fs.IntVar(&o.ScriptTimeout, "script-timeout", 0, "timeout of a monitored script in seconds (default 90)")
	fs.StringVar(&o.onScriptFailure, "on-failure",
		"", "action on the VM when a monitored script fails: stop, keep or delete")
	fs.StringVar(&o.NameTemplate, "name-template", "", "pattern of the VM name, with variables such as $template_name")
	fs.IntVar(&o.VCPU, "vcpu", 0, "CPU cores (default: as in the template)")
	fs.StringVar(&o.memory, "vram", "", "memory, such as 4GB; without a unit in MiB (default: as in the template)")
	fs.StringVar(&o.diskSize, "disk", "", "new size of the first disk, such as 80GB; without a unit in GiB")
	fs.StringVar(&o.NetworkMode, "network-mode", "", "network mode: shared, nat, host, bridge or disconnected")
	fs.StringVar(&o.NetworkLocal, "network-local", "", "access to the local network: forceOn or forceOff")
	fs.StringVar(&o.MACAddress, "mac", "", "MAC address")
	fs.StringVar(&o.VLANTag, "vlan", "", "VLAN ID")
	fs.StringVar(&o.USBDevice, "usb", "", "USB device to attach (claim name or location)")
	fs.StringArrayVarP(&o.ports, "port", "p", nil,
		"port rule name:guest[:host] (default: as in the template); repeatable")
	fs.StringVar(&o.VNCPassword, "vnc-password", "", "VNC password of the console")
	fs.StringVar(&o.VideoController, "video-controller", "", "video adapter: fbuf or pg")
	fs.StringVar(&o.HardwareSerial, "hw-serial", "", "hardware serial number of the VM")
	fs.StringVar(&o.HardwareUUID, "hw-uuid", "", "hardware UUID of the VM")
	nodes.completeFlag(cmd, "node")
	groups.completeFlag(cmd, "group")
	_ = cmd.RegisterFlagCompletionFunc("on-failure",
		cobra.FixedCompletions([]string{"stop", "keep", "delete"}, cobra.ShellCompDirectiveNoFileComp))
}

// failHandlers are the values of --on-failure.
var failHandlers = map[string]client.FailHandler{
	"": client.StopOnFailure, "stop": client.StopOnFailure, "keep": client.KeepOnFailure,
	"delete": client.DeleteOnFailure,
}

// newRequest creates the request from the flags.
func (o *startOptions) newRequest(ctx context.Context, template string) (r client.StartRequest, err error) {
	r = o.StartRequest
	var known bool
	if r.ScriptFailHandler, known = failHandlers[o.onScriptFailure]; !known {
		return r, cli.Usage(errors.New("invalid --on-failure: want stop, keep or delete"))
	}
	if r.Count < 1 {
		return r, cli.Usage(errors.New("invalid --count: want at least 1"))
	}
	for key, value := range o.metadata {
		if r.Metadata == nil {
			r.Metadata = map[string]any{}
		}
		r.Metadata[key] = value
	}
	if o.scriptOnBoot {
		r.ScriptCondition = client.AfterBoot
	}
	if err = o.addSizes(&r); err != nil {
		return r, cli.Usage(err)
	}
	r.TTL = client.Duration(o.ttl)
	if r.Ports, err = portRules(o.ports); err != nil {
		return r, cli.Usage(err)
	}
	if r.StartupScript, err = o.readScript(ctx, o.scriptFile); err != nil {
		return r, err
	}
	var tag string
	if r.TemplateID, tag, err = o.findTemplate(ctx, template); err != nil {
		return r, err
	}
	v, err := o.selected(tag)
	if err != nil {
		return r, err
	}
	r.Tag, r.Version = v.Tag, v.Number
	if o.node != "" {
		if r.NodeID, err = nodes.find(ctx, o.API, o.node); err != nil {
			return r, err
		}
	}
	if o.actingGroup != "" {
		if r.GroupID, err = groups.find(ctx, o.API, o.actingGroup); err != nil {
			return r, err
		}
	}
	r.IdempotencyKey = client.NewKey()
	return r, nil
}

// findTemplate finds a template that is given with or without a tag. Names may have colons.
func (a *Command) findTemplate(ctx context.Context, text string) (id, tag string, err error) {
	id, err = templates.find(ctx, a.API, text)
	name, tag, cut := strings.Cut(text, ":")
	if err == nil || !cut || name == "" {
		return id, "", err
	}
	id, err = templates.find(ctx, a.API, name)
	return id, tag, err
}

// maxScriptBytes bounds a script file in bytes; the API accepts less.
const maxScriptBytes = 1 << 20

// readScript reads a script; "" is none.
func (a *Command) readScript(ctx context.Context, file string) ([]byte, error) {
	from := a.In
	switch {
	case file == "":
		return nil, nil
	case file != "-":
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("script: %w", err)
		}
		defer func() { _ = f.Close() }()
		from = f
	case a.In == nil:
		from = strings.NewReader("")
	}
	text, err := cli.ReadOrEnd(ctx,
		func() ([]byte, error) { return io.ReadAll(io.LimitReader(from, maxScriptBytes+1)) })
	switch {
	case err != nil:
		return nil, fmt.Errorf("script: %w", err)
	case len(text) == 0:
		return nil, errors.New("script is empty")
	case len(text) > maxScriptBytes:
		return nil, fmt.Errorf("script limit (%d bytes) reached", maxScriptBytes)
	}
	return text, nil
}

// portRules reads rules of the form name:guest[:host].
func portRules(texts []string) (rules []client.PortRule, err error) {
	for _, text := range texts {
		part := strings.Split(text, ":")
		if len(part) < 2 || len(part) > 3 || part[0] == "" {
			return nil, fmt.Errorf("invalid --port %q: want name:guest[:host]", text)
		}
		number := []int{0, 0}
		for i, digits := range part[1:] {
			n, err := strconv.ParseUint(digits, 10, 16)
			if err != nil || n == 0 {
				return nil, fmt.Errorf("invalid --port %q: %q is not a port", text, digits)
			}
			number[i] = int(n)
		}
		rules = append(rules, client.PortRule{Name: part[0], GuestPort: number[0], HostPort: number[1]})
	}
	return rules, nil
}

func (o *startOptions) run(ctx context.Context, template string) error {
	r, err := o.newRequest(ctx, template)
	if err != nil {
		return err
	}
	got, err := callAPI(ctx, func(ctx context.Context) ([]string, error) { return o.API.Start(ctx, r) })
	if err != nil {
		return nameTemplate(err, strings.TrimSuffix(template, ":"+r.Tag))
	}
	err = o.printIDs(got)
	if err != nil || !o.wait {
		return err
	}
	continues := `the starts continue; see "buildyard instance list"`
	if len(got.value) == 1 {
		continues = fmt.Sprintf(`the start continues; wait for it with "buildyard instance wait %s"`, got.value[0])
	}
	return o.waitWithTimeout(ctx, continues, func(ctx context.Context) error { return o.awaitStarted(ctx, got.value) })
}

// awaitStarted waits until instances are Started and prints the progress on standard error.
func (a *Command) awaitStarted(ctx context.Context, ids []string) error {
	m := newProgressMeter(a.Err)
	m.expectItems(ids...)
	results := runOnEach(ctx, ids, "Started", func(ctx context.Context, id string) error {
		_, err := a.API.WaitStarted(ctx, id, func(i api.Instance) { m.updateItem(id, progressText(i), startShare(i)) })
		return instances.nameNotFound(err, id)
	})
	m.end()
	if ctx.Err() != nil {
		return interruptedWaitError(ctx, results)
	}
	if len(results) > 1 {
		for _, r := range results {
			if r.err != nil {
				_, _ = fmt.Fprintln(a.Err, cli.EscapeName(r.ErrorText))
			}
		}
	}
	return resultsError(results)
}

// startShare returns the progress of a start, most of which is the pull.
func startShare(i api.Instance) float64 {
	switch i.InstanceState {
	case "Started":
		return 1
	case "Pulling":
		return 0.9 * i.Progress
	}
	return 0
}

// completeVersions completes templates, and after a colon their tags.
func completeVersions(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	name, _, cut := strings.Cut(text, ":")
	if len(args) > 0 || !cut {
		return templates.completeArgs(1)(cmd, args, text)
	}
	var out []string
	for _, tag := range tagsOf(cmd, name) {
		out = append(out, name+":"+tag)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeTags completes the tags of the template that is the first argument.
func completeTags(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return tagsOf(cmd, args[0]), cobra.ShellCompDirectiveNoFileComp
}

func tagsOf(cmd *cobra.Command, template string) (tags []string) {
	ctx, c, cancel, err := openForCompletion(cmd)
	if err != nil {
		return nil
	}
	defer cancel()
	id, err := templates.find(ctx, c, template)
	if err != nil {
		return nil
	}
	detail, err := c.Template(ctx, id)
	if err != nil {
		return nil
	}
	for _, v := range detail.Versions {
		tags = append(tags, cli.EscapeName(v.Tag))
	}
	return tags
}
