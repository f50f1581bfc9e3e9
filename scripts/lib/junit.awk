# Reads the JUnit file that ctest writes and prints one line a result, fields separated by tabs:
#   passed|failed|skipped  NAME  REASON
# A test counts as skipped when it ended with its SKIP_RETURN_CODE or is disabled; a test that could not be run at all
# counts as failed. A GoogleTest program that skipped cases inside gets a "skipped" line for each of them, and counts as
# passed only if another case passed. A skipped test may name its reason in a line "skipped: REASON".
# ctest writes each tag on a line of its own; only its own format is understood. Plain awk (mawk).

function attribute(line, name,    at, rest) {
  at = index(line, " " name "=\"")
  if (at == 0) return ""
  rest = substr(line, at + length(name) + 3)
  return unescape(substr(rest, 1, index(rest, "\"") - 1))
}

function unescape(text) {
  gsub(/&lt;/, "<", text); gsub(/&gt;/, ">", text); gsub(/&quot;/, "\"", text); gsub(/&apos;/, "'", text)
  gsub(/&#x9;|&#x0?A;|&#10;/, " ", text); gsub(/&amp;/, "\\&", text); gsub(/\t/, " ", text)
  return text
}

function finish() {
  if (name == "") return
  if (status == "run") {
    if (cases == 0 || !none_passed) print "passed\t" name "\t"
    for (i = 0; i < cases; ++i) print "skipped\t" name ": " case_name[i] "\t" case_reason[i]
  } else if (status == "disabled" || (status == "notrun" && message ~ /^SKIP_|^Disabled/)) {
    print "skipped\t" name "\t" (reason != "" ? reason : (status == "disabled" ? "disabled" : "it gave no reason"))
  } else {
    print "failed\t" name "\t" (message != "" ? message : "see its output above")
  }
  name = ""
}

/^[ \t]*<testcase / {
  finish()
  name = attribute($0, "name"); status = attribute($0, "status")
  message = ""; reason = ""; cases = 0; pending = ""; in_skip = 0; none_passed = 0
}
/^[ \t]*<(skipped|failure) / { if (message == "") message = attribute($0, "message") }
name != "" {
  line = $0
  sub(/^[ \t]*<system-out>/, "", line)
  sub(/<\/system-out>.*$/, "", line)
  if (line ~ /^skipped: /) reason = unescape(substr(line, 10))
  if (line ~ /^\[  PASSED  \] 0 tests/) none_passed = 1
  # GoogleTest: "file.cc:12: Skipped", the reason on the next lines, then "[  SKIPPED ] Suite.Case (0 ms)".
  if (line ~ /^\[  SKIPPED \] .* \([0-9]+ ms\)$/) {
    sub(/^\[  SKIPPED \] /, "", line); sub(/ \([0-9]+ ms\)$/, "", line)
    case_name[cases] = unescape(line); case_reason[cases] = pending != "" ? pending : "it gave no reason"
    ++cases; pending = ""; in_skip = 0
  } else if (line ~ /^[^ ]+:[0-9]+: Skipped$/) {
    in_skip = 1; pending = ""
  } else if (in_skip && line != "") {
    pending = pending (pending == "" ? "" : " ") unescape(line)
  }
}
END { finish() }
