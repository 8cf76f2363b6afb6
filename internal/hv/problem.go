package hv

// ProblemReporter is implemented by drivers that notice that their host starts no guests until an
// operator acts.
type ProblemReporter interface {
	// Problem returns why the host starts no guests and what to do; "" while it starts them. It reads
	// memory only and may be called often.
	Problem() string
}
