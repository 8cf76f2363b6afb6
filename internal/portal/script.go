package portal

import (
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
)

// scriptView is the startup script of an instance: while it runs, or its result.
type scriptView struct {
	Since   *time.Time // it runs since then; nil: it does not
	Result  *api.ScriptResult
	Excerpt *logExcerpt    // the end of the output of a script that failed; nil: it did not
	Outputs []scriptOutput // what one without a result has printed
}

// scriptOutput is one output of a script without a result.
type scriptOutput struct {
	ID      string
	Name    string
	Excerpt *logExcerpt // its last lines
	Text    string      // more of it; "": the last lines are all
}

// newScriptView returns the startup script of an instance.
func newScriptView(vm api.Instance, transitions []api.Transition) scriptView {
	out := scriptView{Result: vm.StartupScript}
	if r := vm.StartupScript; r != nil && (r.ReturnCode != 0 || r.DidTimeout || len(r.Errors) > 0) {
		text := r.Stderr
		if text == "" {
			text = r.Stdout
		}
		if isLong(text) {
			out.Excerpt = newLogExcerpt("", text)
		}
	}
	if vm.ScriptOutput != nil && vm.StartupScript == nil {
		out.addOutput("stdout", "Standard output", vm.ScriptOutput.Stdout)
		out.addOutput("stderr", "Standard error", vm.ScriptOutput.Stderr)
	}
	if vm.Phase != "startup_script" {
		return out
	}
	out.Since = &vm.Started // within Started, a phase is not a transition
	for _, t := range slices.Backward(transitions) {
		if t.Phase == "startup_script" {
			out.Since = &t.Time
			break
		}
	}
	return out
}

// isLong reports whether a text has more lines than an excerpt.
func isLong(text string) bool {
	return strings.Count(strings.TrimRight(text, "\r\n"), "\n") >= excerptLines
}

func (s *scriptView) addOutput(id, name, text string) {
	if text == "" {
		return
	}
	one := scriptOutput{ID: id, Name: name, Excerpt: newLogExcerpt("", text)}
	if isLong(text) {
		one.Text = text
	}
	s.Outputs = append(s.Outputs, one)
}
