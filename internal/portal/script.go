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
	Outputs []scriptOutput // what one that runs has printed so far
}

// scriptOutput is one output of a script that runs.
type scriptOutput struct {
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
		if strings.Count(text, "\n") > excerptLines { // else the whole output is as short
			out.Excerpt = newLogExcerpt("", text)
		}
	}
	if vm.Phase != "startup_script" {
		return out
	}
	if vm.ScriptOutput != nil {
		out.addOutput("Standard output", vm.ScriptOutput.Stdout)
		out.addOutput("Standard error", vm.ScriptOutput.Stderr)
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

func (s *scriptView) addOutput(name, text string) {
	if text == "" {
		return
	}
	one := scriptOutput{Name: name, Excerpt: newLogExcerpt("", text)}
	if strings.Count(text, "\n") > excerptLines {
		one.Text = text
	}
	s.Outputs = append(s.Outputs, one)
}
