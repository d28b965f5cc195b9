-- The part of the dissector that does not depend on names and numbers of the protocol. It uses no operator and no
-- library that differs between Lua 5.1 and 5.4, the versions that Wireshark has had.

-- Shows the fields of a record that are in the captured bytes. Returns the offset behind the record.
local function show_record(tree, tvb, at, record)
  for _, field in ipairs(record.fields) do
    for index = 0, field.count - 1 do
      local from = at + field.offset + index * field.size
      if from + field.size <= tvb:captured_len() then
        for _, shown in ipairs(field.shown) do
          if field.big then
            tree:add(shown, tvb(from, field.size))
          else
            tree:add_le(shown, tvb(from, field.size))
          end
        end
      end
    end
  end
  return at + record.size
end

local function show_bytes(tree, tvb, at, past)
  local last = math.min(past, tvb:captured_len())
  if last > at then
    tree:add(PAYLOAD, tvb(at, last - at))
  end
end

local function show_elements(tree, tvb, at, past, element)
  if element == nil then
    show_bytes(tree, tvb, at, past)
    return
  end
  local last = math.min(past, tvb:captured_len())
  local branch = tree
  if last > at then
    branch = tree:add(iswitch, tvb(at, last - at), "Elements")
  end
  while at + element.size <= last do
    branch:add_le(element.shown, tvb(at, element.size))
    at = at + element.size
  end
  show_bytes(branch, tvb, at, last)
end

local function show_rest(tree, tvb, at, past, layout, count, format)
  local last = math.min(past, tvb:captured_len())
  if layout.rest == "ELEMENTS" then
    show_elements(tree, tvb, at, past, ELEMENTS[format])
  elseif layout.rest == "ROWS" then
    while at + layout.row.size <= last do
      at = show_record(tree:add(iswitch, tvb(at, layout.row.size), layout.row.name), tvb, at, layout.row)
    end
    show_bytes(tree, tvb, at, past)
  elseif layout.rest == "ITEMS" then
    local stride = count > 0 and math.floor((past - at) / count) or 0
    while stride >= layout.row.size and at + layout.row.size <= last and at + stride <= past do
      local bytes = math.min(stride, last - at)
      local item = tree:add(iswitch, tvb(at, bytes), layout.row.name)
      show_bytes(item, tvb, show_record(item, tvb, at, layout.row), at + stride)
      at = at + stride
    end
    show_bytes(tree, tvb, at, past)
  else
    show_bytes(tree, tvb, at, past)
  end
end

function iswitch.dissector(tvb, pinfo, root)
  local have, size = tvb:captured_len(), tvb:reported_len()
  if have < 1 then
    return 0
  end
  local first = tvb(0, 1):uint()
  if math.floor(first / 16) ~= VERSION then
    return 0
  end
  pinfo.cols.protocol = "iSwitch"
  local message = MESSAGES[first % 16]
  local tree = root:add(iswitch, tvb(0, have))
  if message == nil then
    pinfo.cols.info = "unknown type " .. first % 16
    show_bytes(tree, tvb, 0, have)
    return have
  end
  local words = { message.name }
  local at = show_record(tree, tvb, 0, message.header)
  if have < at then
    pinfo.cols.info = message.name .. " (truncated)"
    return have
  end
  local layout, count, format = message.layout, 0, 0
  if message.replay then
    local kind = tvb(COUNT_AND_KIND.kind, 1):uint()
    count = tvb(COUNT_AND_KIND.count, 2):le_uint()
    words[#words + 1] = KINDS[kind] or "kind " .. kind
    words[#words + 1] = "session " .. tvb(COUNT_AND_KIND.session, 1):uint()
    layout = layout or REQUESTS[kind] or { rest = "BYTES" }
  else
    format = tvb(JOB_AND_SEQ.format_flags, 1):uint() % 16
    words[#words + 1] = "job " .. tvb(JOB_AND_SEQ.job, 1):uint()
    words[#words + 1] = "member " .. tvb(JOB_AND_SEQ.member, 1):uint()
  end
  words[#words + 1] = "seq " .. tvb(JOB_AND_SEQ.seq, 4):le_uint()
  pinfo.cols.info = table.concat(words, " ")
  local past = size
  if layout.tail and size - layout.tail.size >= at then
    past = size - layout.tail.size
  end
  if layout.first then
    local part = tree
    if at < math.min(past, have) then
      part = tree:add(iswitch, tvb(at, math.min(layout.first.size, past - at, have - at)), layout.first.name)
    end
    if at + layout.first.size <= past then
      at = show_record(part, tvb, at, layout.first)
    end
  end
  show_rest(tree, tvb, at, past, layout, count, format)
  if past < size and past < have then
    show_record(tree:add(iswitch, tvb(past, math.min(size, have) - past), layout.tail.name), tvb, past, layout.tail)
  end
  return have
end
