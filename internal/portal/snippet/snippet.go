package snippet

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/client"
)

// Snippet is a request as code.
type Snippet struct{ ID, Name, Text string }

// Start returns a start as code for several tools.
func (c Caller) Start(r *client.StartRequest, templateName string) []Snippet {
	body, err := json.Marshal(r)
	if err != nil {
		body = []byte(err.Error())
	}
	curl := c.Curl("POST", "/api/v1/vm", string(body))
	if c.kind == "key" {
		curl = "# session.txt: written by the token handshake of the API guide\n" + curl
	}
	command, input := commandOf(r, templateName)
	command += " >instances.txt" + input
	return []Snippet{
		{"curl", "curl", curl},
		{"cli", "CLI", Command(r, templateName, "--controller "+Word(c.url), c.use.cli)},
		{"go", "Go", c.goCode(r)},
		{"github", "GitHub Actions", c.githubJob(command)},
		{"gitlab", "GitLab", c.gitlabJob(command)},
	}
}

// Command writes a start as a command of the command line client. A script is its standard input.
func Command(r *client.StartRequest, templateName string, more ...string) string {
	command, input := commandOf(r, templateName, more...)
	return command + input
}

// commandOf writes a start as a command, and its standard input.
func commandOf(r *client.StartRequest, templateName string, more ...string) (command, input string) {
	template := r.TemplateID
	if templateName != "" && !strings.HasPrefix(templateName, "-") { // which would be an option
		template = templateName
	}
	if r.Tag != "" {
		template += ":" + r.Tag
	}
	if template == "" {
		template = "TEMPLATE"
	}
	words := []string{"buildyard instance start " + Word(template)}
	add := func(flag, value string) {
		if value != "" {
			words = append(words, "--"+flag+" "+Word(value))
		}
	}
	number := func(flag string, n int) {
		if n != 0 {
			add(flag, strconv.Itoa(n))
		}
	}
	if r.Version != nil {
		add("version", strconv.Itoa(*r.Version))
	}
	add("name", r.Name)
	number("count", r.Count)
	if r.TTL > 0 {
		add("ttl", time.Duration(r.TTL).String())
	}
	add("group", r.GroupID)
	add("node", r.NodeID)
	number("priority", r.Priority)
	add("external-id", r.ExternalID)
	for _, key := range slices.Sorted(maps.Keys(r.Metadata)) {
		if pair := fmt.Sprint(key, "=", r.Metadata[key]); !isList(pair) {
			add("metadata", pair)
		}
	}
	add("permission-group", r.Group)
	words = append(words, machineFlags(r)...)
	words = append(words, scriptFlags(r)...)
	words = append(words, slices.DeleteFunc(more, func(s string) bool { return s == "" })...)
	words = append(words, "--wait")
	return notInCommand(r) + wrapWords(words), scriptInput(r.StartupScript)
}

// isList reports whether the command would read a pair of metadata as several, or as another one.
func isList(pair string) bool {
	return strings.ContainsAny(pair, ",\"\n") && (strings.Count(pair, "=") != 1 || strings.Contains(pair, `"`))
}

// notInCommand is a comment that names the fields of a start that the command has no arguments for; "": none is set.
func notInCommand(r *client.StartRequest) string {
	var names []string
	for _, f := range []struct {
		name  string
		isSet bool
	}{
		{"metadata with commas or quotes", hasList(r.Metadata)},
		{"hvapic", r.HVAPIC != ""},
		{"csr_active_config", r.CSRActiveConfig != ""},
		{"skip_container_resize", r.Disk != nil && r.Disk.SkipResize},
		{"port_forwarding_override without ports", r.Ports != nil && len(r.Ports) == 0},
		{"host_ip of ports", slices.ContainsFunc(r.Ports, func(p client.PortRule) bool { return p.HostIP != "" })},
	} {
		if f.isSet {
			names = append(names, f.name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "# Not in this form, only in that of curl: " + strings.Join(names, ", ") + "\n"
}

func hasList(metadata map[string]any) bool {
	for key, value := range metadata {
		if isList(fmt.Sprint(key, "=", value)) {
			return true
		}
	}
	return false
}

// machineFlags returns the arguments about the machine and its network.
func machineFlags(r *client.StartRequest) (words []string) {
	for _, f := range []struct{ flag, value string }{
		{"vcpu", textOf(r.VCPU)},
		{"vram", textOf(r.VRAM)},
		{"usb", r.USBDevice},
		{"network-mode", r.NetworkMode},
		{"network-local", r.NetworkLocal},
		{"vlan", r.VLANTag},
		{"mac", r.MACAddress},
		{"name-template", r.NameTemplate},
		{"video-controller", r.VideoController},
		{"hw-serial", r.HardwareSerial},
		{"hw-uuid", r.HardwareUUID},
		{"vnc-password", r.VNCPassword},
	} {
		if f.value != "" {
			words = append(words, "--"+f.flag+" "+Word(f.value))
		}
	}
	if r.Disk != nil {
		words = append(words, "--disk "+Word(r.Disk.Size))
	}
	for _, p := range r.Ports {
		rule := p.Name + ":" + strconv.Itoa(p.GuestPort)
		if p.HostPort != 0 {
			rule += ":" + strconv.Itoa(p.HostPort)
		}
		words = append(words, "--port "+Word(rule))
	}
	return words
}

// textOf writes a number; "" for 0.
func textOf(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// scriptFlags returns the arguments about the startup script.
func scriptFlags(r *client.StartRequest) (words []string) {
	if len(r.StartupScript) == 0 {
		return nil
	}
	words = []string{"--script -"}
	if r.ScriptCondition == client.AfterBoot {
		words = append(words, "--script-on-boot")
	}
	if !r.ScriptMonitoring {
		return words
	}
	words = append(words, "--monitor")
	if r.ScriptTimeout > 0 {
		words = append(words, "--script-timeout "+strconv.Itoa(r.ScriptTimeout))
	}
	switch r.ScriptFailHandler {
	case client.KeepOnFailure:
		words = append(words, "--on-failure keep")
	case client.DeleteOnFailure:
		words = append(words, "--on-failure delete")
	}
	return words
}

// scriptInput is a script as the standard input of a command; "" for none.
func scriptInput(script []byte) string {
	if len(script) == 0 {
		return ""
	}
	end := "EOF"
	for strings.Contains(string(script), end) {
		end += "_"
	}
	return " <<'" + end + "'\n" + strings.TrimSuffix(string(script), "\n") + "\n" + end
}

// wrapWords joins the arguments of a command; long commands continue on lines of their own.
func wrapWords(words []string) string {
	line := strings.Join(words, " ")
	if len(line) <= 80 {
		return line
	}
	return strings.Join(words, " \\\n  ")
}

// goCode writes a start as Go code with the client package.
func (c Caller) goCode(r *client.StartRequest) string {
	var b strings.Builder
	options := "client.Options{}"
	switch {
	case c.use.code == "key":
		b.WriteString("key, err := client.ParseAPIKey(os.Getenv(\"BUILDYARD_KEY_ID\"), os.Getenv(\"BUILDYARD_KEY\"))\n")
		b.WriteString("if err != nil {\n\treturn err\n}\n")
		options = "client.Options{Credentials: key}"
	case c.use.code != "":
		options = "client.Options{Credentials: " + c.use.code + "}"
	}
	fmt.Fprintf(&b, "c, err := client.NewController(%q, %s)\nif err != nil {\n\treturn err\n}\n", c.url, options)
	b.WriteString("ids, err := c.Start(ctx, client.StartRequest{\n")
	value := reflect.ValueOf(*r)
	for i := range value.NumField() {
		field, name := value.Field(i), value.Type().Field(i).Name
		if text := goValue(field); text != "" && name != "IdempotencyKey" {
			fmt.Fprintf(&b, "\t%s: %s,\n", name, text)
		}
	}
	b.WriteString("\tIdempotencyKey: client.NewKey(),\n})\nif err != nil {\n\treturn err\n}\n")
	b.WriteString("for _, id := range ids {\n\tif _, err := c.WaitStarted(ctx, id, nil); err != nil {\n")
	b.WriteString("\t\treturn err\n\t}\n}")
	return b.String()
}

// goValue writes the value of a field of a request as Go code; "" for the zero value.
func goValue(field reflect.Value) string {
	if field.IsZero() {
		return ""
	}
	switch value := field.Interface().(type) {
	case client.Duration:
		switch d := time.Duration(value); {
		case d%time.Millisecond != 0:
			return fmt.Sprintf("client.Duration(%d * time.Nanosecond)", int64(d))
		case d%time.Second != 0:
			return fmt.Sprintf("client.Duration(%d * time.Millisecond)", d.Milliseconds())
		}
		return fmt.Sprintf("client.Duration(%d * time.Second)", int64(time.Duration(value)/time.Second))
	case []byte:
		return fmt.Sprintf("[]byte(%q)", value)
	case *int:
		return fmt.Sprintf("new(%d)", *value)
	case *client.Disk:
		return fmt.Sprintf("&%#v", *value)
	case client.ScriptCondition, client.FailHandler:
		return fmt.Sprintf("%T(%d)", value, value)
	case map[string]any:
		return strings.ReplaceAll(fmt.Sprintf("%#v", value), "interface {}", "any")
	default:
		return fmt.Sprintf("%#v", value)
	}
}

// certificateFiles are the files to which a job of GitHub Actions writes a client certificate, by the settings.
var certificateFiles = map[string]string{"SVC_CLIENT_CERT": "client.pem", "SVC_CLIENT_KEY": "client.key"}

// githubJob writes a start as a job of GitHub Actions.
func (c Caller) githubJob(command string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "jobs:\n  build:\n    runs-on: ubuntu-latest\n    env:\n      SVC_CONTROLLER: %q\n", c.url)
	for _, name := range slices.Sorted(maps.Keys(c.use.env)) {
		value := "${{ secrets." + c.use.env[name] + " }}"
		if path, ok := certificateFiles[name]; ok {
			value = path
		}
		fmt.Fprintf(&b, "      %s: %s\n", name, value)
	}
	b.WriteString("    steps:\n")
	if _, ok := c.use.env["SVC_CLIENT_CERT"]; ok { // which is the path of a file
		b.WriteString("      - name: Write the client certificate\n        env:\n")
		b.WriteString("          CERT: ${{ secrets.BUILDYARD_CERT }}\n")
		b.WriteString("          CERT_KEY: ${{ secrets.BUILDYARD_CERT_KEY }}\n        run: |\n          umask 077\n")
		b.WriteString("          printf '%s\\n' \"$CERT\" >client.pem\n")
		b.WriteString("          printf '%s\\n' \"$CERT_KEY\" >client.key\n")
	}
	b.WriteString("      - name: Start instances\n        run:")
	b.WriteString(yamlText(strings.ReplaceAll(command, "${{", "${{ '${{' }}"), 10))
	b.WriteString("      # steps that use the instances in instances.txt\n")
	b.WriteString("      - name: Terminate instances\n        if: always()\n        run: ")
	b.WriteString("xargs -r buildyard instance terminate --yes <instances.txt")
	return b.String()
}

// gitlabJob writes a start as a job of GitLab. Variables of the project are in the environment of its jobs.
func (c Caller) gitlabJob(command string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "build:\n  variables:\n    SVC_CONTROLLER: %q\n", c.url)
	for _, name := range slices.Sorted(maps.Keys(c.use.env)) {
		fmt.Fprintf(&b, "    %s: $%s\n", name, c.use.env[name])
	}
	if _, ok := c.use.env["SVC_CLIENT_CERT"]; ok { // which is the path of a file
		b.WriteString("    # BUILDYARD_CERT and BUILDYARD_CERT_KEY are variables of the type File\n")
	}
	b.WriteString("  script:\n    -" + yamlText(command, 6))
	b.WriteString("    # commands that use the instances in instances.txt\n")
	b.WriteString("  after_script:\n    - xargs -r buildyard instance terminate --yes <instances.txt")
	return b.String()
}

// yamlText returns a text as a value of YAML, with the blank before it: as lines with blanks before them, or quoted
// where it has characters that a reader of YAML may take for the end of a line or refuse.
func yamlText(text string, by int) string {
	if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !strconv.IsPrint(r) }) {
		return " " + strconv.QuoteToASCII(text) + "\n"
	}
	return " |\n" + indented(text, by)
}

// indented returns the lines of a text with blanks before them.
func indented(text string, by int) string {
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" {
			b.WriteString(strings.Repeat(" ", by))
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}
