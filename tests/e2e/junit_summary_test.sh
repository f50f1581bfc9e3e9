#!/usr/bin/env bash
# Checks scripts/lib/junit.awk, which scripts/test.sh counts with, on a report as ctest writes it.
set -uo pipefail
root=${1:?usage: junit_summary_test.sh SOURCE_DIR}

got=$(awk -f "$root/scripts/lib/junit.awk" <<'XML'
<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="(empty)"
	tests="9"
	>
	<testcase name="plain" classname="plain" time="0.1" status="run">
		<system-out>fine
</system-out>
	</testcase>
	<testcase name="some" classname="some" time="0.1" status="run">
		<system-out>[ RUN      ] A.b
[       OK ] A.b (0 ms)
[ RUN      ] A.skips
/x/g.cc:3: Skipped
no device &quot;x&quot; &amp; &lt;y&gt;
[  SKIPPED ] A.skips (0 ms)
[ RUN      ] A.silent
/x/g.cc:4: Skipped

[  SKIPPED ] A.silent (12 ms)
[  PASSED  ] 1 test.
[  SKIPPED ] 2 tests, listed below:
[  SKIPPED ] A.skips
[  SKIPPED ] A.silent
</system-out>
	</testcase>
	<testcase name="none" classname="none" time="0.1" status="run">
		<system-out>[ RUN      ] B.skips
/x/g.cc:9: Skipped
no tool
[  SKIPPED ] B.skips (0 ms)
[  PASSED  ] 0 tests.
</system-out>
	</testcase>
	<testcase name="bad" classname="bad" time="0.1" status="fail">
		<failure message=""/>
		<system-out>skipped: not really
</system-out>
	</testcase>
	<testcase name="code" classname="code" time="0.1" status="notrun">
		<skipped message="SKIP_RETURN_CODE=77"/>
		<system-out>skipped: no tool &quot;foo&quot; here
</system-out>
	</testcase>
	<testcase name="mute" classname="mute" time="0.1" status="notrun">
		<skipped message="SKIP_RETURN_CODE=77"/>
		<system-out></system-out>
	</testcase>
	<testcase name="gone" classname="gone" time="0" status="notrun">
		<skipped message="Unable to find executable"/>
		<system-out>Unable to find executable: gone</system-out>
	</testcase>
	<testcase name="off" classname="off" time="0" status="disabled">
		<system-out>Disabled</system-out>
	</testcase>
</testsuite>
XML
)
want=$(printf '%s\t%s\t%s\n' \
  passed plain '' \
  passed some '' \
  skipped 'some: A.skips' 'no device "x" & <y>' \
  skipped 'some: A.silent' 'it gave no reason' \
  skipped 'none: B.skips' 'no tool' \
  failed bad 'see its output above' \
  skipped code 'no tool "foo" here' \
  skipped mute 'it gave no reason' \
  failed gone 'Unable to find executable' \
  skipped off 'disabled')
if [[ $got != "$want" ]]; then
  echo "FAILED: got < and want > differ"
  diff <(printf '%s\n' "$got") <(printf '%s\n' "$want")
  exit 1
fi
echo "the summary is right"
